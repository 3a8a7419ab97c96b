"""Student's t: measurements with outliers, identity link; the degrees of freedom are estimated or given."""

import math
from functools import cache

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array

from natvi.families.family import Extra, Family
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.families.several import expected_over_several
from natvi.quadrature.scalar_rule import expected_over_scalar
from natvi.quadrature.softplus import log_positive

LOG_PI = 1.1447298858494002
START_NU = 5.0
LARGEST_RATIO = 11.0  # of variance and sigma^2, which is infinite for nu <= 2


def _constant(nu: Array) -> Array:
    return gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * jnp.log(nu) - 0.5 * LOG_PI


# log p = c(nu) - a - (nu + 1)/2 log(1 + u),  u = (y - eta)^2 e^{-2a} / nu


def _log_kernel(y: Array, eta: Array, a: Array, nu: Array) -> Array:
    return -0.5 * (nu + 1.0) * jnp.log1p((y - eta) ** 2 * jnp.exp(-2.0 * a) / nu)


def _point(y: Array, eta: Array, a: Array, nu: Array) -> tuple[RowExpectation, Array, Array]:
    """Return the kernel with its derivatives in (eta, a), log(1 + u) and w = 1 / (1 + u)."""
    scale = jnp.exp(-a)
    r = (y - eta) * scale
    u = r * r / nu
    w = 1.0 / (1.0 + u)
    log = log_positive(1.0 + u)
    part = (nu + 1.0) / nu * scale
    first = part * r * w
    bend = part * w * w
    return (
        RowExpectation(
            value=-0.5 * (nu + 1.0) * log,
            d_eta=first,
            d_eta_eta=-bend * scale * (1.0 - u),
            d_disp=(nu + 1.0) * u * w,
            d_eta_disp=-2.0 * bend * r,
            d_disp_disp=-2.0 * (nu + 1.0) * u * w * w,
        ),
        log,
        w,
    )


def _strip(a: Array, nu: Array) -> Array:
    """Return how far the nearest singularities lie from the real line: sigma sqrt(nu)."""
    return jnp.exp(a + 0.5 * jnp.log(nu))


def _draw(key: Array, eta: Array, a: Array, nu: Array) -> Array:
    return eta + jnp.exp(a) * jax.random.t(key, jnp.broadcast_to(nu, eta.shape), eta.shape, eta.dtype)


def _variance(a: Array, nu: Array, mean: Array) -> Array:
    ratio = jnp.where(nu > 2.2, nu / jnp.maximum(nu - 2.0, 0.2), LARGEST_RATIO)
    return jnp.broadcast_to(jnp.exp(2.0 * a) * ratio, jnp.broadcast_shapes(mean.shape, a.shape))


def _rough_scale(y: Array, eta: Array, w: Array) -> Array:
    """Return log sigma from the mean absolute residual about the mean, which outliers move less."""
    error = y - eta
    return jnp.log(jnp.sum(w * jnp.abs(error)) / jnp.sum(w) + 1e-300)


def _identity(values: Array) -> Array:
    return values


@cache
def student_t(nu: float) -> Family:
    """Return Student's t with given degrees of freedom: disp = a = log sigma."""
    # in double precision, whatever JAX takes for it where the family is first asked for
    constant = math.lgamma(0.5 * (nu + 1.0)) - math.lgamma(0.5 * nu) - 0.5 * (math.log(nu) + LOG_PI)
    given = jnp.asarray  # a number of the program

    def kernel(y: Array, eta: Array, disp: Array | None) -> Array:
        assert disp is not None
        return _log_kernel(y, eta, disp, given(nu, eta.dtype))

    def normaliser(y: Array, disp: Array | None) -> Array:
        assert disp is not None
        return jnp.broadcast_to(constant - disp, jnp.broadcast_shapes(y.shape, disp.shape))

    def expected(y: Array, x: PredictorMoments) -> RowExpectation:
        assert x.disp_mean is not None
        own = given(nu, y.dtype)
        found = expected_over_several(lambda eta, a: _point(y, eta, a, own)[0], x, _strip(x.disp_mean, own))
        assert found.d_disp is not None
        return found._replace(value=found.value + constant - x.disp_mean, d_disp=found.d_disp - 1.0)

    return Family(
        name="student_t",
        link="identity",
        extras=(Extra("sigma"),),
        log_kernel=kernel,
        log_normaliser=normaliser,
        expected=expected,
        mean=_identity,
        variance=lambda mean, disp: _variance(disp, given(nu, mean.dtype), mean),
        start=_identity,
        draw=lambda key, eta, disp: _draw(key, eta, disp, given(nu, eta.dtype)),
        start_extras=lambda y, eta, w: _rough_scale(y, eta, w)[None],
        log_concave=False,
        settings=(nu,),
    )


# --- degrees of freedom estimated: disp = (log sigma, log nu) -----------------------------------------------


def _free_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    return _log_kernel(y, eta, disp[0], jnp.exp(disp[1]))


def _free_normaliser(y: Array, disp: Array | None) -> Array:
    assert disp is not None
    value = _constant(jnp.exp(disp[1])) - disp[0]
    return jnp.broadcast_to(value, jnp.broadcast_shapes(y.shape, value.shape))


def _free_point(y: Array, eta: Array, disp: Array) -> RowExpectation:
    """Return the kernel with its derivatives in (eta, a, b), b = log nu: u falls like e^-b, so that u_b = -u."""
    nu = jnp.exp(disp[1])
    part, log, w = _point(y, eta, disp[0], nu)
    assert part.d_disp is not None and part.d_eta_disp is not None and part.d_disp_disp is not None
    u, share = 1.0 / w - 1.0, 1.0 - w  # share = u w
    d_b = -0.5 * nu * log + 0.5 * (nu + 1.0) * share
    # share_b = -u w^2, log(1 + u)_b = -share
    d_b_b = -0.5 * nu * log + nu * share - 0.5 * (nu + 1.0) * share * w
    # d/d eta of d_b: u_eta = -2 (first / ((nu + 1) w)) ... by first = (nu + 1)/2 * -u_eta w
    u_eta = -2.0 * part.d_eta / ((nu + 1.0) * w)
    d_eta_b = u_eta * w * (-0.5 * nu + 0.5 * (nu + 1.0) * w)
    d_a_b = -2.0 * u * w * (-0.5 * nu + 0.5 * (nu + 1.0) * w)
    return RowExpectation(
        value=part.value,
        d_eta=part.d_eta,
        d_eta_eta=part.d_eta_eta,
        d_disp=jnp.stack([part.d_disp, d_b]),
        d_eta_disp=jnp.stack([part.d_eta_disp, d_eta_b]),
        d_disp_disp=jnp.stack([jnp.stack([part.d_disp_disp, d_a_b]), jnp.stack([d_a_b, d_b_b])]),
    )


def _free_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    assert x.disp_mean is not None and x.disp_variance is not None
    mean, variance = x.disp_mean, x.disp_variance
    strip = _strip(mean[0], jnp.exp(mean[1]))
    found = expected_over_several(lambda eta, disp: _free_point(y, eta, disp), x, strip)

    def constants(b: Array) -> tuple[Array, Array, Array]:
        slope = jax.grad(lambda at: jnp.sum(_constant(jnp.exp(at))))
        return _constant(jnp.exp(b)), slope(b), jax.grad(lambda at: jnp.sum(slope(at)))(b)

    value, slope, bend = expected_over_scalar(constants, mean[1], variance[1, 1])
    assert found.d_disp is not None and found.d_disp_disp is not None
    return found._replace(
        value=found.value + value - mean[0],
        d_disp=found.d_disp.at[0].add(-1.0).at[1].add(slope),
        d_disp_disp=found.d_disp_disp.at[1, 1].add(bend),
    )


STUDENT_T = Family(
    name="student_t",
    link="identity",
    extras=(Extra("sigma"), Extra("nu", power=-1.0, prior=("half_normal", (0.5,)))),
    log_kernel=_free_kernel,
    log_normaliser=_free_normaliser,
    expected=_free_expected,
    mean=_identity,
    variance=lambda mean, disp: _variance(disp[0], jnp.exp(disp[1]), mean),
    start=_identity,
    draw=lambda key, eta, disp: _draw(key, eta, disp[0], jnp.exp(disp[1])),
    start_extras=lambda y, eta, w: jnp.stack([_rough_scale(y, eta, w), jnp.asarray(jnp.log(START_NU), y.dtype)]),
    log_concave=False,
)
