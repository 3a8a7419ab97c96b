"""Zero-inflated and hurdle negative binomial counts, log link: disp = (a = log phi, zeta).

With pi = sigmoid(zeta) the same in all rows, as for Poisson counts (`zeros`).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from natvi.families.count import NEGATIVE_BINOMIAL
from natvi.families.family import Extra, Family, no_normaliser
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.families.several import expected_over_several, with_derivatives
from natvi.families.zeros import (
    STRIP,
    ZERO,
    choose_rows,
    expected_hurdle,
    inflated_variance,
    only,
    or_zero,
    positive_poisson,
    scalar_softplus,
    start,
    start_hurdle,
    start_zeta,
    truncation,
    zero_inflated_mean,
)
from natvi.quadrature.softplus import softplus

PHI = Extra("phi", power=-0.5)


def _count_moments(x: PredictorMoments) -> PredictorMoments:
    """Return the moments of the predictor and log phi."""
    assert x.disp_mean is not None and x.disp_variance is not None and x.covariance is not None
    return x._replace(disp_mean=x.disp_mean[0], disp_variance=x.disp_variance[0, 0], covariance=x.covariance[0])


def _with_zeta(found: RowExpectation) -> RowExpectation:
    """Return the expectation of a function of the predictor and log phi as one of zeta too."""
    nothing = jnp.zeros_like(found.value)
    assert found.d_disp is not None and found.d_eta_disp is not None and found.d_disp_disp is not None
    return RowExpectation(
        *found[:3],
        jnp.stack([found.d_disp, nothing]),
        jnp.stack([found.d_eta_disp, nothing]),
        jnp.stack([jnp.stack([found.d_disp_disp, nothing]), jnp.stack([nothing, nothing])]),
    )


def _add_zeta(found: RowExpectation, value: Array, slope: Array, bend: Array) -> RowExpectation:
    assert found.d_disp is not None and found.d_disp_disp is not None
    return found._replace(
        value=found.value + value,
        d_disp=found.d_disp.at[1].add(slope),
        d_disp_disp=found.d_disp_disp.at[1, 1].add(bend),
    )


def _log_none(eta: Array, a: Array) -> Array:
    """Return minus the log-probability of a zero among negative binomial counts: e^a softplus(eta - a)."""
    return jnp.exp(a) * softplus(eta - a)


def _zinb_log_density(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    zero = jnp.logaddexp(disp[1], -_log_none(eta, disp[0]))
    return jnp.where(y == 0, zero, NEGATIVE_BINOMIAL.log_density(y, eta, disp[0])) - softplus(disp[1])


_zinb_point = with_derivatives(lambda eta, disp: jnp.logaddexp(disp[1], -_log_none(eta, disp[0])))


def _zinb_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    assert x.disp_mean is not None and x.disp_variance is not None
    none = y == 0
    zero = expected_over_several(_zinb_point, only(none, x), STRIP)
    count = _with_zeta(NEGATIVE_BINOMIAL.expected(y, _count_moments(only(~none, x))))
    value, slope, bend = scalar_softplus(x.disp_mean[1], x.disp_variance[1, 1])
    return _add_zeta(choose_rows(none, zero, count), -value, -slope, -bend)


def _hurdle_nb_log_density(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    some = NEGATIVE_BINOMIAL.log_density(y, eta, disp[0]) + _nb_truncation(eta, disp[0])
    return jnp.where(y == 0, -softplus(-disp[1]), some - softplus(disp[1]))


def _nb_truncation(eta: Array, a: Array) -> Array:
    # -log(1 - e^-k), log k = a + log softplus(eta - a); far to the left softplus is e^(eta - a)
    t = eta - a
    log_k = a + jnp.where(t < -30.0, t, jnp.log(softplus(jnp.maximum(t, -30.0))))
    return truncation(log_k)


_hurdle_nb_point = with_derivatives(_nb_truncation)


def _hurdle_nb_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    assert x.disp_mean is not None and x.disp_variance is not None
    some = y > 0
    own = _count_moments(only(some, x))
    count = jax.tree.map(
        jnp.add, NEGATIVE_BINOMIAL.expected(y, own), expected_over_several(_hurdle_nb_point, own, STRIP)
    )
    count = jax.tree.map(lambda part: jnp.where(some, part, 0.0), count)
    return _add_zeta(_with_zeta(count), *expected_hurdle(y, x.disp_mean[1], x.disp_variance[1, 1]))


def _hurdle_nb_parts(eta: Array, disp: Array) -> tuple[Array, Array, Array]:
    """Return the share that is not zero, and mean and mean square of what is not."""
    rate, none = jnp.exp(eta), jnp.exp(-_log_none(eta, disp[0]))
    some = jnp.maximum(1.0 - none, 1e-12)
    square = rate + rate**2 * (1.0 + jnp.exp(-disp[0]))
    return jax.nn.sigmoid(-disp[1]), rate / some, square / some


def _hurdle_nb_mean(eta: Array, disp: Array) -> Array:
    share, mean, _ = _hurdle_nb_parts(eta, disp)
    return share * mean


def _hurdle_nb_variance(eta: Array, disp: Array) -> Array:
    share, mean, square = _hurdle_nb_parts(eta, disp)
    return share * square - (share * mean) ** 2


def _zinb_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    first, second = jax.random.split(key)
    assert disp is not None
    return or_zero(first, disp[1], NEGATIVE_BINOMIAL.draw(second, eta, disp[0]))


def _hurdle_nb_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    for_zero, for_rate, for_count = jax.random.split(key, 3)
    # the rate given a count that is not zero: rejection, as often as a zero comes
    phi = jnp.broadcast_to(jnp.exp(disp[0]), eta.shape)

    def log_rate(key: Array) -> Array:
        return eta - disp[0] + jax.random.loggamma(key, phi)

    def again(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        key, kept, done, count = state
        key, one, two = jax.random.split(key, 3)
        new = log_rate(one)
        taken = jax.random.uniform(two, eta.shape) < -jnp.expm1(-jnp.exp(new))
        return key, jnp.where(done, kept, new), done | taken, count + 1

    start = (for_rate, eta, jnp.zeros(eta.shape, bool), jnp.zeros((), jnp.int32))
    found = jax.lax.while_loop(lambda s: ~jnp.all(s[2]) & (s[3] < 10_000), again, start)[1]
    return or_zero(for_zero, disp[1], positive_poisson(for_count, found))


def _start_phi(y: Array, eta: Array, w: Array) -> Array:
    return jnp.zeros((), eta.dtype)


ZERO_INFLATED_NEGATIVE_BINOMIAL = Family(
    name="zero_inflated_negative_binomial",
    link="log",
    extras=(PHI, ZERO),
    log_kernel=_zinb_log_density,
    log_normaliser=no_normaliser,
    expected=_zinb_expected,
    mean=jnp.exp,
    variance=lambda mean, disp: inflated_variance(mean, disp[1], jnp.exp(-disp[0])),
    start=start,
    draw=_zinb_draw,
    mean_given=lambda eta, disp: zero_inflated_mean(eta, disp[1]),
    start_extras=lambda y, eta, w: jnp.stack([_start_phi(y, eta, w), start_zeta(y, eta, w)]),
    log_concave=False,
    discrete=True,
)
HURDLE_NEGATIVE_BINOMIAL = Family(
    name="hurdle_negative_binomial",
    link="log",
    extras=(PHI, ZERO),
    log_kernel=_hurdle_nb_log_density,
    log_normaliser=no_normaliser,
    expected=_hurdle_nb_expected,
    mean=jnp.exp,
    variance=no_normaliser,
    start=start,
    draw=_hurdle_nb_draw,
    mean_given=_hurdle_nb_mean,
    variance_given=_hurdle_nb_variance,
    start_extras=lambda y, eta, w: jnp.stack([_start_phi(y, eta, w), start_hurdle(y, eta, w)]),
    log_concave=False,
    discrete=True,
)
