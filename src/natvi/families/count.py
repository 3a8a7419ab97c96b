"""Counts: Poisson and negative binomial responses, with the log link."""

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array

from natvi.families.family import Extra, Family, no_normaliser
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.quadrature.gamma_functions import log_gamma_ratio
from natvi.quadrature.scalar_rule import expected_over_scalar
from natvi.quadrature.softplus import expected_softplus, softplus


def _start(y: Array) -> Array:
    return jnp.log(y + 0.5)


# --- Poisson -----------------------------------------------------------------------------------------------


def _poisson_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    return y * eta - jnp.exp(eta)


def _poisson_normaliser(y: Array, disp: Array | None) -> Array:
    return -gammaln(y + 1.0)


def _poisson_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    # E e^eta = e^{m + v/2}
    rate = jnp.exp(x.mean + 0.5 * x.variance)
    return RowExpectation(y * x.mean - rate - gammaln(y + 1.0), y - rate, -rate)


def _poisson_variance(mean: Array, disp: Array | None) -> Array:
    return mean


def _poisson_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    return jax.random.poisson(key, jnp.exp(eta)).astype(eta.dtype)


# --- negative binomial: disp = a = log phi, Var y = mu + mu^2 / phi ----------------------------------------


# log p = y t - (y + e^a) softplus(t) + log Gamma(y + e^a) - log Gamma(e^a) - log y!,  t = eta - a


def _negative_binomial_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    t = eta - disp
    return y * t - (y + jnp.exp(disp)) * softplus(t)


def _negative_binomial_normaliser(y: Array, disp: Array | None) -> Array:
    assert disp is not None
    return log_gamma_ratio(y, disp)[0] - gammaln(y + 1.0)


def _negative_binomial_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    assert x.disp_mean is not None and x.disp_variance is not None and x.covariance is not None
    m = x.mean - x.disp_mean
    v = jnp.maximum(x.variance + x.disp_variance - 2.0 * x.covariance, 0.0)
    # y t - y softplus(t) = -y softplus(-t): of the two, the one with the small softplus
    sign = jnp.where(m > 0, -1.0, 1.0).astype(m.dtype)
    # E e^a f(t) = e^{m_a + v_a/2} E f(t + Cov(t, a)), taken together with the untilted one
    log_phi = x.disp_mean + 0.5 * x.disp_variance
    means = jnp.stack([sign * m, m + x.covariance - x.disp_variance])
    scales = jnp.stack([jnp.zeros_like(m), jnp.broadcast_to(log_phi, m.shape)])
    (loss, tilted), (slope, tilted_slope), (bend, tilted_bend) = expected_softplus(means, jnp.stack([v, v]), scales)
    ratio, ratio_slope, ratio_bend = expected_over_scalar(lambda a: log_gamma_ratio(y, a), x.disp_mean, x.disp_variance)
    rise = y * jnp.where(m > 0, slope, 1.0 - slope)  # y E sigmoid(-t)
    return RowExpectation(
        value=y * jnp.minimum(m, 0.0) - y * loss - tilted + ratio - gammaln(y + 1.0),
        d_eta=rise - tilted_slope,
        d_eta_eta=-y * bend - tilted_bend,
        d_disp=ratio_slope - rise - (tilted - tilted_slope),
        d_eta_disp=y * bend - (tilted_slope - tilted_bend),
        d_disp_disp=ratio_bend - y * bend - ((tilted - tilted_slope) - (tilted_slope - tilted_bend)),
    )


def _negative_binomial_variance(mean: Array, disp: Array | None) -> Array:
    assert disp is not None
    return mean + mean**2 * jnp.exp(-disp)


def _negative_binomial_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    # a Poisson count whose rate is a gamma variable of mean e^eta and shape phi
    assert disp is not None
    for_rate, for_count = jax.random.split(key)
    log_gamma = jax.random.loggamma(for_rate, jnp.broadcast_to(jnp.exp(disp), eta.shape))
    return jax.random.poisson(for_count, jnp.exp(eta - disp + log_gamma)).astype(eta.dtype)


POISSON = Family(
    name="poisson",
    link="log",
    extras=(),
    log_kernel=_poisson_kernel,
    log_normaliser=_poisson_normaliser,
    expected=_poisson_expected,
    mean=jnp.exp,
    variance=_poisson_variance,
    start=_start,
    discrete=True,
    draw=_poisson_draw,
)
NEGATIVE_BINOMIAL = Family(
    name="negative_binomial",
    link="log",
    extras=(Extra("phi", power=-0.5),),
    log_kernel=_negative_binomial_kernel,
    log_normaliser=_negative_binomial_normaliser,
    expected=_negative_binomial_expected,
    mean=jnp.exp,
    variance=_negative_binomial_variance,
    start=_start,
    discrete=True,
    draw=_negative_binomial_draw,
)


# --- geometric: the negative binomial with phi = 1 ----------------------------------------------------------


def _geometric_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    # log p = -y softplus(-eta) - softplus(eta)
    return -y * softplus(-eta) - softplus(eta)


def _geometric_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    loss, slope, bend = expected_softplus(-jnp.abs(x.mean), x.variance)
    right = x.mean > 0
    up = jnp.where(right, x.mean + loss, loss)  # E softplus(eta), and E softplus(-eta) below
    down = jnp.where(right, loss, loss - x.mean)
    rise = jnp.where(right, 1.0 - slope, slope)
    return RowExpectation(-y * down - up, y * (1.0 - rise) - rise, -(y + 1.0) * bend)


def _geometric_variance(mean: Array, disp: Array | None) -> Array:
    return mean + mean**2


def _geometric_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    return _negative_binomial_draw(key, eta, jnp.zeros((), eta.dtype))


GEOMETRIC = Family(
    name="geometric",
    link="log",
    extras=(),
    log_kernel=_geometric_kernel,
    log_normaliser=no_normaliser,
    expected=_geometric_expected,
    mean=jnp.exp,
    variance=_geometric_variance,
    start=_start,
    draw=_geometric_draw,
    discrete=True,
)
