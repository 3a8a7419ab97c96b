"""The posterior predictive of a net: averages over weights, in pieces that fit into memory."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.models.deep.net_rows import NetRows

PIECE = 250  # examples at a time, at least: what a convolution lays out for more leaves the cache
PIECE_NUMBERS = 200_000  # of small examples as many as make so many numbers: every piece costs a round of the loop


class Sums:
    """Running sums over weight draws of what a predictive is made of."""

    def __init__(self, num_rows: int) -> None:
        """Begin with nothing."""
        self.num_draws = 0
        self.mean: Any = 0.0
        self.square: Any = 0.0  # of the expected response, for its spread over weights
        self.entropy: Any = np.zeros(num_rows)
        self.variance: Any = np.zeros(num_rows)
        self.log_density: Any = np.full(num_rows, -np.inf)


@partial(jax.jit, static_argnums=0)
def _one_draw(net: NetRows, theta: Float[Array, " d"], pieces: Any) -> tuple[Any, Any, Any]:
    """Return expected response, log-density and variance of every example, piece by piece."""

    def one(piece: Any) -> tuple[Any, Any, Any]:
        output = net.output(theta, piece["x"])
        log_density = net.likelihood.log_density(output, piece["y"]) if "y" in piece else None
        variance = None if net.likelihood.variance is None else net.likelihood.variance(output)
        return net.likelihood.mean(output), log_density, variance

    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), jax.lax.map(one, pieces))


def over_draws(net: NetRows, draws: Any, X: Any, y: Any = None) -> Sums:
    """Return the sums over weight draws: an iterable of flat vectors."""
    n, sums = len(X), Sums(len(X))
    width = math.prod(X.shape[1:])
    pieces = {"x": _in_pieces(X, width)} | ({} if y is None else {"y": _in_pieces(y, width)})
    for theta in draws:
        found = _one_draw(net, theta, pieces)
        mean = np.asarray(found[0])[:n].astype(np.float64)
        log_density, variance = (None if part is None else np.asarray(part)[:n] for part in found[1:])
        sums.num_draws += 1
        sums.mean, sums.square = sums.mean + mean, sums.square + mean**2
        if net.likelihood.has_classes:
            sums.entropy = sums.entropy + entropy(mean)
        if log_density is not None:
            sums.log_density = np.logaddexp(sums.log_density, log_density)
        if variance is not None:
            sums.variance = sums.variance + variance
    return sums


def _in_pieces(a: Any, width: int) -> Array:
    """Return an array cut into pieces for examples of `width` numbers, the last one filled up with the first row."""
    size = min(max(PIECE, PIECE_NUMBERS // max(1, width)), len(a))
    missing = -len(a) % size
    filled = np.concatenate([a, np.repeat(a[:1], missing, axis=0)]) if missing else np.asarray(a)
    return jnp.asarray(filled.reshape(-1, size, *a.shape[1:]))


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Return the entropy in nats of every row's classes; a vector holds probabilities of class 1.

    Example:
        >>> entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).round(3).tolist()
        [0.693, 0.0]
    """
    table = np.column_stack([1 - probabilities, probabilities]) if probabilities.ndim == 1 else probabilities
    return np.abs(-np.sum(np.where(table > 0, table * np.log(np.maximum(table, 1e-300)), 0.0), axis=1))


def weight_draws(mean: Any, sds: Any, num_draws: int, seed: int) -> Any:
    """Yield draws of the weights, one after the other, so that many need no room."""
    for key in jax.random.split(jax.random.key(seed), num_draws):
        yield jnp.asarray(mean) + jnp.asarray(sds) * jax.random.normal(key, np.shape(mean), jnp.float32)
