"""From linear predictors to predictions: the expected response under a Gaussian predictor, or from draws of it."""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natvi.families.rows import take_extras
from natvi.families.table import Family
from natvi.models.regression.rows import Covariates
from natvi.run.compiled_code import thorough_jit
from natvi.special import ndtr, ndtri
from natvi.x64 import float64

KINDS = ("response", "link")
PROBABILITIES = "probabilities"  # of ordered categories
MEAN_DRAWS = 500
CHUNK_ROWS = 2_000  # worked on together; times 2,000 draws 32 MB
# Trapezoidal rules: in z = (eta - m) / s where s is small, in eta, over the bend of the curve, where it is large.
# The error is exp(-2 pi a / step) with a = pi/2 (cloglog; pi for the logit) in eta, pi/(2s) in z: below 1e-11.
WIDE = 3.0
Z_STEP, Z_NODES = 0.125, np.linspace(-7.5, 7.5, 121)
ETA_STEP, ETA_NODES = 0.25, np.linspace(-40.0, 40.0, 321)


def check_word(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not among those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}.")


def gaussian_columns(
    family: Family, m: Float[np.ndarray, " n"], s: Float[np.ndarray, " n"], kind: str, prob: float
) -> Float[np.ndarray, "4 n"]:
    """Return mean, sd and interval of Gaussian predictors, or of the expected responses.

    Of a binomial response the expected response is the probability of success.
    """
    z = ndtri(0.5 + prob / 2)
    predictor = np.stack([m, s, m - z * s, m + z * s])
    if kind == "link":
        return predictor
    columns = np.empty_like(predictor)
    wide = s > WIDE
    for rows in (np.flatnonzero(~wide), np.flatnonzero(wide)):  # each has its own rule
        for own in slices(rows, many=200):
            # what is too large for a float is infinite, what comes from a failed fit is NaN
            with np.errstate(over="ignore", invalid="ignore"):
                columns[:2, own] = response_moments(family, m[own], s[own])
            # the inverse link is monotone: it takes quantiles to quantiles
            columns[2:, own] = apply_mean(family, predictor[2:, own])
    return columns


def drawn_columns(
    family: Family, rows: Covariates, shared: np.ndarray, local: np.ndarray | None, kind: str, prob: float
) -> Float[np.ndarray, "4 n"]:
    """Return the columns from draws of the parameters, some rows at a time."""
    tail = 0.5 - prob / 2
    columns = np.empty((4, rows.num_rows))
    for at in range(0, rows.num_rows, CHUNK_ROWS):
        own = slice(at, at + CHUNK_ROWS)
        eta = rows.take(own).predictors(shared, local)
        disp = take_extras(family, shared.T, rows.X.shape[1])
        value = eta if kind == "link" else drawn_means(family, eta, disp)  # type: ignore[arg-type]
        quantiles = np.quantile(value, [tail, 1 - tail], axis=0)
        columns[:, own] = value.mean(axis=0), value.std(axis=0, ddof=1), *quantiles
    return columns


def slices(rows: np.ndarray, many: int = 1) -> Iterator[np.ndarray]:
    """Yield the rows in slices of one size, the last filled up with its last row: no new size to compile for.

    Very many rows come in slices up to `many` times as long, where what is compiled is small.
    """
    size = CHUNK_ROWS if len(rows) <= 10 * CHUNK_ROWS else min(many * CHUNK_ROWS, len(rows))
    for at in range(0, len(rows), size):
        yield rows[np.minimum(np.arange(at, at + size), len(rows) - 1)]


def response_moments(family: Family, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sd of the expected response under a Gaussian predictor, to about 1e-8 for any sd."""
    if family.link == "identity":
        return m, s
    if family.mean is jnp.exp:
        # E e^eta = e^{m + s^2/2}
        mean = np.exp(m + s**2 / 2)
        return mean, mean * np.sqrt(np.expm1(s**2))
    mean, variance = np.empty_like(m), np.empty_like(m)
    narrow = s <= WIDE
    for rows, moments in ((narrow, _narrow_moments), (~narrow, _wide_moments)):
        if rows.any():
            mean[rows], variance[rows] = moments(family, m[rows], s[rows])
    if family.link == "probit":
        mean = ndtr(m / np.hypot(1.0, s))  # E Phi(eta) = Phi(m / sqrt(1 + s^2))
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _narrow_moments(family: Family, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of g(eta), the inverse link: sums of g(m + s z) - g(m) over nodes z."""
    middle = apply_mean(family, m)
    first, second = np.zeros_like(m), np.zeros_like(m)
    for z in Z_NODES:
        weight = Z_STEP * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        value = apply_mean(family, m + s * z) - middle
        first += weight * value
        second += weight * value**2
    return middle + first, second - first**2


def _wide_moments(family: Family, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of g(eta), the inverse link of a probability, by nodes along its bend: for any large s.

    With p = E g and E Phi(eta) = Phi(m / sqrt(1 + s^2)),

        p = Phi(m / sqrt(1 + s^2)) + E (g - Phi)(eta),     Var g = p (1 - p) - E g (1 - g)(eta),

    and g - Phi and g (1 - g) are zero far from the bend.
    """
    g = apply_mean(family, ETA_NODES)
    gap, bend = np.zeros_like(m), np.zeros_like(m)
    for eta, value in zip(ETA_NODES, g, strict=True):
        weight = ETA_STEP * np.exp(-0.5 * ((eta - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))
        gap += weight * (value - ndtr(eta))
        bend += weight * value * (1.0 - value)
    middle = m / np.hypot(1.0, s)
    p, q = (np.clip(ndtr(sign * middle) + sign * gap, 0.0, 1.0) for sign in (1.0, -1.0))
    return p, p * q - bend


def drawn_means(
    family: Family, eta: Float[np.ndarray, "s n"], disp: Float[np.ndarray, "*q s"] | None
) -> Float[np.ndarray, "s n"]:
    """Return the mean of the response in every draw and row."""
    if family.mean_given is None or disp is None:
        return apply_mean(family, eta)
    with float64():
        return np.asarray(_mean_given(family, jnp.asarray(eta), jnp.asarray(disp)[..., None]))


@partial(thorough_jit, static_argnums=0)
def _mean_given(family: Family, eta: jax.Array, disp: jax.Array) -> jax.Array:
    return family.response_mean(eta, disp)


def apply_mean(family: Family, eta: np.ndarray) -> np.ndarray:
    """Return the mean of the response at given predictors."""
    with float64():
        return np.asarray(_mean(family, jnp.asarray(eta)))


@partial(thorough_jit, static_argnums=0)
def _mean(family: Family, eta: jax.Array) -> jax.Array:
    return family.mean(eta)
