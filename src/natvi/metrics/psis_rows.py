"""Pareto-smoothed importance weights of many rows at once, for leave-one-out cross-validation.

What `psis` does for one set of weights, for the weights of every row of a table: the same tail, the same fit, the same
quantiles. A row asks for some thousand logarithms; here factors 1 - b x are multiplied before one is taken.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.metrics.psis import LEAST_TAIL
from natvi.x64 import float64

TOGETHER = 4  # factors of one product: 1 - b x stays far below 1e77


class RowWeights(NamedTuple):
    """Smoothed weights of the rows, summed up.

    Attributes:
        mean: The weighted mean of the values of every row.
        k: The shape of the tail; infinite where there are too few draws to say, -1 where all of it is the same.
        effective: How many equally weighted draws the weighted ones are worth.
    """

    mean: Float[np.ndarray, " n"]
    k: Float[np.ndarray, " n"]
    effective: Float[np.ndarray, " n"]


def smooth_rows(log_ratios: Float[np.ndarray, "n s"], values: Float[np.ndarray, "n s"]) -> RowWeights:
    """Return weighted means of values under smoothed weights proportional to e^{log_ratios}, row by row.

    Args:
        log_ratios: Logarithms of the weights, up to a constant of each row; NaN counts as no weight.
        values: What is averaged, zero or more.

    Returns:
        The means, shapes and effective numbers of draws.

    Example:
        >>> flat = smooth_rows(np.zeros((1, 100)), np.linspace(0.5, 1.5, 100)[None])
        >>> float(flat.mean[0].round(6)), float(flat.k[0])
        (1.0, -1.0)
    """
    s = log_ratios.shape[1]
    top = log_ratios.max(axis=1, keepdims=True)
    if not np.all(np.isfinite(top)):
        log_ratios = np.where(np.isnan(log_ratios), -np.inf, log_ratios)
        top = np.nan_to_num(log_ratios.max(axis=1, keepdims=True))
    weights = np.subtract(log_ratios, top)
    np.exp(weights, out=weights)
    length = int(np.ceil(min(0.2 * s, 3.0 * np.sqrt(s))))
    k = np.full(len(weights), np.inf)
    if length >= LEAST_TAIL:
        at = np.argpartition(weights, s - length - 1, axis=1)[:, s - length - 1 :]
        some = np.take_along_axis(weights, at, axis=1)
        order = np.argsort(some, axis=1)
        some, at = np.take_along_axis(some, order, axis=1), np.take_along_axis(at, order, axis=1)
        with float64():
            tail, k = map(np.asarray, _smooth_tails(jnp.asarray(some[:, :1]), jnp.asarray(some[:, 1:])))
        np.put_along_axis(weights, at[:, 1:], tail, axis=1)
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore"):  # rows without any weight give NaN
        mean = np.einsum("ns,ns->n", weights, values) / total
        return RowWeights(mean, k, total**2 / np.einsum("ns,ns->n", weights, weights))


@jax.jit
def _smooth_tails(
    cutoff: Float[Array, "n 1"], tail: Float[Array, "n m"]
) -> tuple[Float[Array, "n m"], Float[Array, " n"]]:
    """Return sorted tails with quantiles of the fitted Pareto distribution in their place, and its shape.

    Zhang and Stephens (2009), as in `psis.fit_pareto`.
    """
    m = tail.shape[1]
    cutoff = jnp.maximum(cutoff, jnp.finfo(tail.dtype).tiny)
    excess = tail - cutoff
    same = excess[:, -1] - excess[:, 0] <= 1e-12 * tail[:, -1]
    fitted = ~same & (excess[:, 0] > 0.0)
    x = jnp.where(fitted[:, None], excess, jnp.arange(1.0, m + 1.0))  # anything that can be fitted
    size = 30 + int(np.sqrt(m))
    grid = (1.0 - jnp.sqrt(size / (jnp.arange(1, size + 1) - 0.5))) / 3.0
    b = grid / x[:, int(m / 4 + 0.5) - 1, None] + 1.0 / x[:, -1, None]
    shapes = _mean_log(b, x)
    # profile log-likelihood m {log(-b / k) - k - 1}
    heights = m * (jnp.log(-b / shapes) - shapes - 1.0)
    chances = jax.nn.softmax(heights, axis=1)
    middle = jnp.sum(b * chances, axis=1, keepdims=True)
    raw = _mean_log(middle, x)
    k, scale = (m * raw + 5.0) / (m + 10.0), -raw / middle
    away = -jnp.log1p(-(jnp.arange(m) + 0.5) / m)
    bent = jnp.abs(k) > 1e-12
    quantiles = scale * jnp.where(bent, jnp.expm1(k * away) / jnp.where(bent, k, 1.0), away)
    smooth = jnp.where(fitted[:, None], jnp.minimum(cutoff + quantiles, 1.0), tail)
    return smooth, jnp.where(fitted, k[:, 0], jnp.where(same, -1.0, jnp.inf))


def _mean_log(b: Float[Array, "n q"], x: Float[Array, "n m"]) -> Float[Array, "n q"]:
    """Return the mean of log(1 - b x) over the values of each row."""
    m = x.shape[1]
    padded = jnp.pad(x, ((0, 0), (0, -m % TOGETHER))).reshape(len(x), -1, TOGETHER)  # log(1 - b 0) = 0

    def add(column: Array, total: Array) -> Array:
        product = jnp.ones_like(b)
        for j in range(TOGETHER):
            product = product * (1.0 - b * padded[:, column, j, None])
        return total + jnp.log(product)

    return jax.lax.fori_loop(0, padded.shape[1], add, jnp.zeros_like(b)) / m
