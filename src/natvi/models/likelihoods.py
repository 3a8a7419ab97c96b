"""Response distributions: a family is a row of data.

Each row names how log p(y | eta, dispersion) is computed, its exact expectation under a Gaussian for the
predictor (and the dispersion parameter), the mean of the response given eta, and a rough predictor to start from.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from natvi.derivatives.quadrature import expected_softplus
from natvi.target.likelihood_rows import PredictorMoments, RowExpectation

LOG_2PI = 1.8378770664093453


class Family(NamedTuple):
    """A response distribution with its link; hashable, so that compiled code is shared between fits."""

    name: str
    link: str
    dispersion: str | None
    log_density: Callable[..., Float[Array, "*rows"]]
    expected: Callable[[Float[Array, "*rows"], PredictorMoments], RowExpectation]
    mean: Callable[[Float[Array, "*rows"]], Float[Array, "*rows"]]
    start: Callable[[Float[Array, "*rows"]], Float[Array, "*rows"]]
    draw: Callable[..., Float[Array, "*rows"]]

    @property
    def has_dispersion(self) -> bool:
        """Whether the family has a dispersion parameter, on the log scale."""
        return self.dispersion is not None


def _poisson_log_density(y: Array, eta: Array, disp: Array | None) -> Array:
    return y * eta - jnp.exp(eta) - gammaln(y + 1.0)


def _poisson_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    # E e^eta = e^{m + v/2}
    rate = jnp.exp(x.mean + 0.5 * x.variance)
    return RowExpectation(y * x.mean - rate - gammaln(y + 1.0), y - rate, -rate)


def _bernoulli_log_density(y: Array, eta: Array, disp: Array | None) -> Array:
    return -jax.nn.softplus((1.0 - 2.0 * y) * eta)


def _bernoulli_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    # log p = -softplus(t) with t = (1 - 2y) eta: small values keep their relative accuracy for either y
    sign = 1.0 - 2.0 * y
    value, slope, curvature = expected_softplus(sign * x.mean, x.variance)
    return RowExpectation(-value, -sign * slope, -curvature)


def _gaussian_log_density(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    return -0.5 * LOG_2PI - disp - 0.5 * jnp.exp(-2.0 * disp) * (y - eta) ** 2


def _gaussian_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    # disp = log sigma; tilting by e^{-2 disp} shifts eta by -2 Cov(eta, disp)
    assert x.disp_mean is not None and x.disp_variance is not None and x.covariance is not None
    precision = jnp.exp(-2.0 * x.disp_mean + 2.0 * x.disp_variance)
    error = y - x.mean + 2.0 * x.covariance
    squared = precision * (error**2 + x.variance)
    return RowExpectation(
        value=-0.5 * LOG_2PI - x.disp_mean - 0.5 * squared,
        d_eta=precision * error,
        d_eta_eta=jnp.broadcast_to(-precision, y.shape),
        d_disp=squared - 1.0,
        d_eta_disp=-2.0 * precision * error,
        d_disp_disp=-2.0 * squared,
    )


def _normal_draw(key: Array, eta: Array, disp: Array) -> Array:
    return eta + jnp.exp(disp) * jax.random.normal(key, eta.shape)


FAMILIES = {
    "poisson": Family(
        name="poisson",
        link="log",
        dispersion=None,
        log_density=_poisson_log_density,
        expected=_poisson_expected,
        mean=jnp.exp,
        start=lambda y: jnp.log(y + 0.5),
        draw=lambda key, eta, disp: jax.random.poisson(key, jnp.exp(eta)).astype(eta.dtype),
    ),
    "bernoulli": Family(
        name="bernoulli",
        link="logit",
        dispersion=None,
        log_density=_bernoulli_log_density,
        expected=_bernoulli_expected,
        mean=jax.nn.sigmoid,
        start=lambda y: 2.0 * y - 1.0,
        draw=lambda key, eta, disp: jax.random.bernoulli(key, jax.nn.sigmoid(eta)).astype(eta.dtype),
    ),
    "gaussian": Family(
        name="gaussian",
        link="identity",
        dispersion="log(sigma)",
        log_density=_gaussian_log_density,
        expected=_gaussian_expected,
        mean=lambda eta: eta,
        start=lambda y: y,
        draw=_normal_draw,
    ),
}
