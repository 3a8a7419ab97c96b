"""Measurements on further scales: log-normal, Gaussian with the log link, and waiting times that may be censored.

A waiting time that was cut short comes with a minus sign: y < 0 stands for a time greater than |y|.
"""

from functools import cache

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array

from natvi.families.family import Extra, Family, no_normaliser
from natvi.families.real import GAUSSIAN, LOG_2PI
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.quadrature.scalar_rule import expected_over_scalar

LEAST_SHARE = 0.1  # of the mean: rough predictors of smaller responses start from there


def _log(y: Array) -> Array:
    return jnp.log(jnp.where(y > 0, y, 1.0))


# --- log-normal: a Gaussian of log y ------------------------------------------------------------------------


def _lognormal_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    return GAUSSIAN.log_kernel(_log(y), eta, disp)


def _lognormal_normaliser(y: Array, disp: Array | None) -> Array:
    return GAUSSIAN.log_normaliser(y, disp) - _log(y)


def _lognormal_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    found = GAUSSIAN.expected(_log(y), x)
    return found._replace(value=found.value - _log(y))


def _lognormal_mean(eta: Array, disp: Array) -> Array:
    # E e^eta = e^{eta + sigma^2 / 2}
    return jnp.exp(eta + 0.5 * jnp.exp(2.0 * disp))


def _lognormal_variance(mean: Array, disp: Array | None) -> Array:
    assert disp is not None
    return mean**2 * jnp.expm1(jnp.exp(2.0 * disp))


def _lognormal_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    return jnp.exp(GAUSSIAN.draw(key, eta, disp))


# --- Gaussian with the log link: disp = a = log sigma, mean e^eta -------------------------------------------


def _gaussian_log_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    return GAUSSIAN.log_kernel(y, jnp.exp(eta), disp)


def _gaussian_log_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    # tilting by e^{-2a} shifts eta by -2 Cov(eta, a);  E (y - e^eta)^2 = y^2 - 2 y e^{m + v/2} + e^{2m + 2v}
    assert x.disp_mean is not None and x.disp_variance is not None and x.covariance is not None
    precision = jnp.exp(-2.0 * x.disp_mean + 2.0 * x.disp_variance)
    m = x.mean - 2.0 * x.covariance
    first, second = jnp.exp(m + 0.5 * x.variance), jnp.exp(2.0 * (m + x.variance))
    squared = precision * (y**2 - 2.0 * y * first + second)
    d_eta = precision * (y * first - second)
    return RowExpectation(
        value=-0.5 * LOG_2PI - x.disp_mean - 0.5 * squared,
        d_eta=d_eta,
        d_eta_eta=precision * (y * first - 2.0 * second),
        d_disp=squared - 1.0,
        d_eta_disp=-2.0 * d_eta,
        d_disp_disp=-2.0 * squared,
    )


def _gaussian_log_start(y: Array) -> Array:
    return jnp.log(jnp.maximum(y, LEAST_SHARE * jnp.mean(jnp.abs(y)) + 1e-300))


def _gaussian_log_extras(y: Array, eta: Array, w: Array) -> Array:
    squares = jnp.sum(w * (y - jnp.exp(eta)) ** 2) / jnp.sum(w)
    return 0.5 * jnp.log(jnp.minimum(squares, jnp.sum(w * y**2) / jnp.sum(w)) + 1e-300)[None]


def _gaussian_log_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    return GAUSSIAN.draw(key, jnp.exp(eta), disp)


# --- exponential waiting times: mean e^eta ------------------------------------------------------------------


def _ended(y: Array) -> Array:
    return jnp.where(y > 0, 1.0, 0.0).astype(y.dtype)


def _exponential_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    # log p = -d eta - |y| e^-eta, d = 0 for a time that was cut short
    return -_ended(y) * eta - jnp.abs(y) * jnp.exp(-eta)


def _exponential_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    # E e^-eta = e^{-m + v/2}
    rate = jnp.abs(y) * jnp.exp(-x.mean + 0.5 * x.variance)
    d = _ended(y)
    return RowExpectation(-d * x.mean - rate, -d + rate, -rate)


def _exponential_variance(mean: Array, disp: Array | None) -> Array:
    return mean**2


def _exponential_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    return jnp.exp(eta) * jax.random.exponential(key, eta.shape, eta.dtype)


def _time_start(y: Array) -> Array:
    return jnp.log(jnp.where(y == 0, 1.0, jnp.abs(y)))


# --- Weibull waiting times: disp = a = log shape, cumulative hazard e^{eta + e^a l}, l = log(t / scale) ------


# log p = d (a + eta + (e^a - 1) l) - e^{eta + e^a l} - d log scale; the scale is so large that l <= 0 in the data: for
# l > 0 the expectation is infinite, since e^{e^a} grows faster than a Gaussian falls


@cache
def weibull(log_scale: float) -> Family:
    """Return the Weibull family whose times are measured in units of e^{log_scale}."""

    def place(y: Array) -> Array:
        return _time_start(y) - log_scale

    def kernel(y: Array, eta: Array, disp: Array | None) -> Array:
        assert disp is not None
        return _ended(y) * eta - jnp.exp(eta + jnp.exp(disp) * place(y))

    def normaliser(y: Array, disp: Array | None) -> Array:
        assert disp is not None
        return _ended(y) * (disp + jnp.expm1(disp) * place(y) - log_scale)

    def expected(y: Array, x: PredictorMoments) -> RowExpectation:
        # tilting by e^eta shifts a by Cov(eta, a);  E e^a = e^{m_a + v_a / 2}
        assert x.disp_mean is not None and x.disp_variance is not None and x.covariance is not None
        d, line, covariance = _ended(y), place(y), x.covariance

        def hazard(a: Array) -> tuple[Array, Array, Array]:
            power = jnp.exp(a + covariance) * line
            value = jnp.exp(power)
            return value, value * power, value * power * (1.0 + power)

        value, slope, bend = expected_over_scalar(hazard, x.disp_mean, x.disp_variance)
        level, shape = jnp.exp(x.mean + 0.5 * x.variance), jnp.exp(x.disp_mean + 0.5 * x.disp_variance)
        value, slope, bend = level * value, level * slope, level * bend
        return RowExpectation(
            value=d * (x.disp_mean + x.mean + (shape - 1.0) * line - log_scale) - value,
            d_eta=d - value,
            d_eta_eta=-value,
            d_disp=d * (1.0 + shape * line) - slope,
            d_eta_disp=-slope,
            d_disp_disp=d * shape * line - bend,
        )

    def mean_given(eta: Array, disp: Array) -> Array:
        # E t = scale e^{-eta / k} Gamma(1 + 1/k)
        return jnp.exp(log_scale - eta * jnp.exp(-disp) + gammaln(1.0 + jnp.exp(-disp)))

    def variance(mean: Array, disp: Array | None) -> Array:
        assert disp is not None
        part = jnp.exp(-disp)
        return mean**2 * jnp.expm1(gammaln(1.0 + 2.0 * part) - 2.0 * gammaln(1.0 + part))

    def draw(key: Array, eta: Array, disp: Array | None) -> Array:
        assert disp is not None
        waited = jax.random.exponential(key, eta.shape, eta.dtype)
        return jnp.exp(log_scale + (jnp.log(waited) - eta) * jnp.exp(-disp))

    return Family(
        name="weibull",
        link="log hazard",
        extras=(Extra("shape"),),
        log_kernel=kernel,
        log_normaliser=normaliser,
        expected=expected,
        mean=jnp.exp,
        variance=variance,
        start=lambda y: -place(y),
        draw=draw,
        mean_given=mean_given,
        start_extras=lambda y, eta, w: jnp.zeros(1, eta.dtype),
        settings=(log_scale,),
    )


LOGNORMAL = Family(
    name="lognormal",
    link="log",
    extras=(Extra("sigma"),),
    log_kernel=_lognormal_kernel,
    log_normaliser=_lognormal_normaliser,
    expected=_lognormal_expected,
    mean=jnp.exp,
    variance=_lognormal_variance,
    start=_log,
    draw=_lognormal_draw,
    mean_given=_lognormal_mean,
    quadratic=True,
)
GAUSSIAN_LOG = Family(
    name="gaussian",
    link="log",
    extras=(Extra("sigma"),),
    log_kernel=_gaussian_log_kernel,
    log_normaliser=GAUSSIAN.log_normaliser,
    expected=_gaussian_log_expected,
    mean=jnp.exp,
    variance=GAUSSIAN.variance,
    start=_gaussian_log_start,
    draw=_gaussian_log_draw,
    start_extras=_gaussian_log_extras,
    log_concave=False,
)
EXPONENTIAL = Family(
    name="exponential",
    link="log",
    extras=(),
    log_kernel=_exponential_kernel,
    log_normaliser=no_normaliser,
    expected=_exponential_expected,
    mean=jnp.exp,
    variance=_exponential_variance,
    start=_time_start,
    draw=_exponential_draw,
)
