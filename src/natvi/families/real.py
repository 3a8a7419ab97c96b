"""Measurements: Gaussian responses with the identity link, gamma responses with the log link."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from natvi.families.family import Extra, Family
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.quadrature.gamma_functions import stirling_remainder
from natvi.quadrature.scalar_rule import expected_over_scalar

LOG_2PI = 1.8378770664093453

# --- Gaussian: disp = log sigma ----------------------------------------------------------------------------


def _gaussian_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    return -0.5 * jnp.exp(-2.0 * disp) * (y - eta) ** 2


def _gaussian_normaliser(y: Array, disp: Array | None) -> Array:
    assert disp is not None
    return jnp.broadcast_to(-0.5 * LOG_2PI - disp, jnp.broadcast_shapes(y.shape, disp.shape))


def _gaussian_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    # tilting by e^{-2 disp} shifts eta by -2 Cov(eta, disp)
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


def _gaussian_mean(eta: Array) -> Array:
    return eta


def _gaussian_variance(mean: Array, disp: Array | None) -> Array:
    assert disp is not None
    return jnp.broadcast_to(jnp.exp(2.0 * disp), mean.shape)


def _gaussian_start(y: Array) -> Array:
    return y


def _gaussian_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    return eta + jnp.exp(disp) * jax.random.normal(key, eta.shape, eta.dtype)


# --- gamma: disp = a = log shape, mean e^eta ---------------------------------------------------------------


# log p = e^a (a - eta + log y - y e^-eta) - log Gamma(e^a) - log y; with d = eta - log y and Stirling's formula
#       = -e^a (e^-d - 1 + d) + a/2 - log(2 pi)/2 - J(e^a) - log y


def _gamma_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    d = eta - _log(y)
    return -jnp.exp(disp) * (jnp.expm1(-d) + d)


def _gamma_normaliser(y: Array, disp: Array | None) -> Array:
    assert disp is not None
    return 0.5 * disp - 0.5 * LOG_2PI - stirling_remainder(disp)[0] - _log(y)


def _gamma_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    # tilting by e^a shifts eta by Cov(eta, a):  E e^a (e^-d - 1 + d) = e^{m_a + v_a/2} (e^{-d + v/2} - 1 + d),
    # d = m + Cov(eta, a) - log y on the right, a sum of two positive parts
    assert x.disp_mean is not None and x.disp_variance is not None and x.covariance is not None
    log_shape = x.disp_mean + 0.5 * x.disp_variance
    log_y = _log(y)
    d = x.mean + x.covariance - log_y
    power = -d + 0.5 * x.variance
    spread = _scaled(log_shape + power, -jnp.expm1(-0.5 * x.variance))
    loss = _scaled(log_shape + jnp.maximum(-d, 0.0), _excess(d)) + spread
    # e^{m_a + v_a/2} (e^power - 1)
    d_eta = jnp.sign(power) * _scaled(log_shape + jnp.maximum(power, 0.0), -jnp.expm1(-jnp.abs(power)))
    remainder, slope, bend = expected_over_scalar(stirling_remainder, x.disp_mean, x.disp_variance)
    return RowExpectation(
        value=-loss + 0.5 * x.disp_mean - 0.5 * LOG_2PI - remainder - log_y,
        d_eta=d_eta,
        d_eta_eta=-jnp.exp(log_shape + power),
        d_disp=0.5 - loss - slope,
        d_eta_disp=d_eta,
        d_disp_disp=-loss - bend,
    )


def _log(y: Array) -> Array:
    """Return log y; empty cells hold 0, and must not spoil a gradient by infinity times 0."""
    return jnp.log(jnp.where(y > 0, y, 1.0))


def _scaled(log_scale: Array, part: Array) -> Array:
    """Return e^{log_scale} part for part >= 0; where that is 0, an overflow of the other factor does not matter."""
    return jnp.where(part == 0, 0.0, jnp.exp(log_scale) * part)


def _excess(d: Array) -> Array:
    """Return (e^-d - 1 + d) e^{min(d, 0)}, between 0 and max(d, 1), relatively accurate near d = 0."""
    u = jnp.abs(d)
    # d > 0: u^2/2! - u^3/3! + ...;  d < 0: 1 - (1 + u) e^-u = u^2/2! - 2 u^3/3! + 3 u^4/4! - ...
    near = jnp.minimum(u, 0.1)
    right, left = jnp.zeros_like(u), jnp.zeros_like(u)
    factorial = 3628800.0
    for n in range(10, 1, -1):
        sign = 1.0 if n % 2 == 0 else -1.0
        right, left = right * near + sign / factorial, left * near + sign * (n - 1) / factorial
        factorial /= n
    far_right, far_left = jnp.expm1(-u) + u, -jnp.expm1(-u) - u * jnp.exp(-u)
    series, direct = jnp.where(d > 0, right, left) * near**2, jnp.where(d > 0, far_right, far_left)
    return jnp.where(u < 0.1, series, direct)


def _gamma_variance(mean: Array, disp: Array | None) -> Array:
    assert disp is not None
    return mean**2 * jnp.exp(-disp)


def _gamma_start(y: Array) -> Array:
    return _log(y)


def _gamma_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    return jnp.exp(eta - disp + jax.random.loggamma(key, jnp.broadcast_to(jnp.exp(disp), eta.shape)))


GAUSSIAN = Family(
    name="gaussian",
    link="identity",
    extras=(Extra("sigma"),),
    log_kernel=_gaussian_kernel,
    log_normaliser=_gaussian_normaliser,
    expected=_gaussian_expected,
    mean=_gaussian_mean,
    variance=_gaussian_variance,
    start=_gaussian_start,
    draw=_gaussian_draw,
    quadratic=True,
)
GAMMA = Family(
    name="gamma",
    link="log",
    extras=(Extra("shape", power=-0.5),),
    log_kernel=_gamma_kernel,
    log_normaliser=_gamma_normaliser,
    expected=_gamma_expected,
    mean=jnp.exp,
    variance=_gamma_variance,
    start=_gamma_start,
    draw=_gamma_draw,
)
