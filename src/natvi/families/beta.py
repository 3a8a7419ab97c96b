"""Beta responses: shares between 0 and 1, logit link, precision phi; Var y = mu (1 - mu) / (1 + phi)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from natvi.families.family import Extra, Family
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.families.several import expected_over_several
from natvi.quadrature.gamma_functions import stirling_remainder
from natvi.quadrature.softplus import softplus

HALF_LOG_2PI = 0.9189385332046727
LEAST_PHI, LARGEST_PHI = 0.1, 1e4


def _log_gamma(a: Array) -> tuple[Array, Array, Array]:
    """Return log Gamma(e^a) with its first and second derivative in a."""
    x = jnp.exp(a)
    J, slope, bend = stirling_remainder(a)
    # log Gamma(x) = (x - 1/2) a - x + log(2 pi)/2 + J(x)
    return (x - 0.5) * a - x + HALF_LOG_2PI + J, x * a - 0.5 + slope, x * a + x + bend


@jax.custom_jvp
def _value(a: Array) -> Array:
    return _log_gamma(a)[0]


@jax.custom_jvp
def _slope(a: Array) -> Array:
    return _log_gamma(a)[1]


_value.defjvp(lambda at, moves: (_value(*at), _slope(*at) * moves[0]))
_slope.defjvp(lambda at, moves: (_slope(*at), _log_gamma(*at)[2] * moves[0]))


def _log_odds(y: Array) -> tuple[Array, Array]:
    inside = (y > 0) & (y < 1)
    y = jnp.where(inside, y, 0.5)  # empty cells hold 0
    return jnp.log(y), jnp.log1p(-y)


# log p = log Gamma(phi) - log Gamma(p) - log Gamma(q) + p log y + q log(1 - y) - log y - log(1 - y),
# p = mu phi, q = (1 - mu) phi; their logarithms are a - softplus(-eta) and a - softplus(eta), a = log phi


def _kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    log_y, log_rest = _log_odds(y)
    log_p, log_q = disp - softplus(-eta), disp - softplus(eta)
    return jnp.exp(log_p) * log_y + jnp.exp(log_q) * log_rest - _value(log_p) - _value(log_q)


def _normaliser(y: Array, disp: Array | None) -> Array:
    assert disp is not None
    log_y, log_rest = _log_odds(y)
    return _value(disp) - log_y - log_rest


def _point(y: Array, eta: Array, a: Array) -> RowExpectation:
    log_y, log_rest = _log_odds(y)
    below, above = softplus(-eta), softplus(eta)
    log_p, log_q = a - below, a - above
    mu = jnp.exp(-below)
    nu = jnp.exp(-above)  # 1 - mu
    p, q = jnp.exp(log_p), jnp.exp(log_q)
    value_p, slope_p, bend_p = _log_gamma(log_p)
    value_q, slope_q, bend_q = _log_gamma(log_q)
    # F = p log y - log Gamma(p), by log p; likewise G by log q;  log p moves by nu with eta, log q by -mu, both with a
    F, F1, F2 = p * log_y - value_p, p * log_y - slope_p, p * log_y - bend_p
    G, G1, G2 = q * log_rest - value_q, q * log_rest - slope_q, q * log_rest - bend_q
    turn = mu * nu
    return RowExpectation(
        value=F + G,
        d_eta=F1 * nu - G1 * mu,
        d_eta_eta=F2 * nu**2 + G2 * mu**2 - turn * (F1 + G1),
        d_disp=F1 + G1,
        d_eta_disp=F2 * nu - G2 * mu,
        d_disp_disp=F2 + G2,
    )


def _expected(y: Array, x: PredictorMoments) -> RowExpectation:
    def point(eta: Array, a: Array) -> RowExpectation:
        found, (value, slope, bend) = _point(y, eta, a), _log_gamma(a)
        assert found.d_disp is not None and found.d_disp_disp is not None
        return found._replace(
            value=found.value + value, d_disp=found.d_disp + slope, d_disp_disp=found.d_disp_disp + bend
        )

    found = expected_over_several(point, x, jnp.pi)
    log_y, log_rest = _log_odds(y)
    return found._replace(value=found.value - log_y - log_rest)


def _start(y: Array) -> Array:
    # the link of a share that is drawn towards 1/2
    share = jnp.clip(y, 0.01, 0.99)
    return jnp.log(share) - jnp.log1p(-share)


def _start_extras(y: Array, eta: Array, w: Array) -> Array:
    mu = jax.nn.sigmoid(eta)
    ratio = jnp.sum(w * mu * (1.0 - mu)) / jnp.maximum(jnp.sum(w * (y - mu) ** 2), 1e-300)
    return jnp.log(jnp.clip(ratio - 1.0, LEAST_PHI, LARGEST_PHI))[None]


def _variance(mean: Array, disp: Array | None) -> Array:
    assert disp is not None
    return mean * (1.0 - mean) / (1.0 + jnp.exp(disp))


def _draw(key: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    mu, phi = jax.nn.sigmoid(eta), jnp.exp(disp)
    return jax.random.beta(key, mu * phi, (1.0 - mu) * phi, eta.shape, eta.dtype)


BETA = Family(
    name="beta",
    link="logit",
    extras=(Extra("phi", power=-0.5),),
    log_kernel=_kernel,
    log_normaliser=_normaliser,
    expected=_expected,
    mean=jax.nn.sigmoid,
    variance=_variance,
    start=_start,
    draw=_draw,
    start_extras=_start_extras,
    log_concave=False,
)
