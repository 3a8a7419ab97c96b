"""Counts with too many zeros: zero-inflated and hurdle Poisson, log link (`zeros_negative_binomial` has the other).

With pi = sigmoid(zeta) the same in all rows: zero-inflated counts are 0 with probability pi, else counts, which may be
0 too; hurdle counts are 0 with probability pi, else counts that are not.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from natvi.families.count import POISSON
from natvi.families.family import Extra, Family, no_normaliser
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.families.several import expected_over_several
from natvi.quadrature.binary_losses import cloglog_loss, expected_cloglog_loss
from natvi.quadrature.softplus import expected_softplus, softplus

LARGEST_LOG = 300.0  # of a rate whose square must be a number
STRIP = 0.8
ZERO = Extra("zero", "logit")


def _log_rate(eta: Array) -> Array:
    return jnp.minimum(eta, LARGEST_LOG)


def scalar_softplus(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return E softplus(zeta) of one number, or of one for every row, with its derivatives in the mean."""
    if mean.ndim:
        return expected_softplus(mean, variance)
    value, slope, bend = expected_softplus(mean[None], variance[None])
    return value[0], slope[0], bend[0]


def only(rows: Array, x: PredictorMoments) -> PredictorMoments:
    """Return the moments, other rows having none: they must not refine the step."""
    return x._replace(
        mean=jnp.where(rows, x.mean, 0.0),
        variance=jnp.where(rows, x.variance, 0.0),
        covariance=None if x.covariance is None else jnp.where(rows, x.covariance, 0.0),
    )


def choose_rows(rows: Array, one: RowExpectation, other: RowExpectation) -> RowExpectation:
    """Return one expectation in some rows and another in the others."""
    return jax.tree.map(lambda a, b: jnp.where(rows, a, b), one, other)


# --- zero-inflated Poisson: disp = zeta ---------------------------------------------------------------------

# log p(0) = log(e^zeta + e^-rate) - softplus(zeta);   log p(y) = y eta - rate - log y! - softplus(zeta)


def _zip_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    zero = jnp.logaddexp(disp, -jnp.exp(_log_rate(eta)))
    return jnp.where(y == 0, zero, POISSON.log_kernel(y, eta, None)) - softplus(disp)


def _zip_point(eta: Array, zeta: Array) -> RowExpectation:
    rate = jnp.exp(_log_rate(eta))
    # share of counts among the zeros
    r = jax.nn.sigmoid(-rate - zeta)
    spread = r * (1.0 - r)
    return RowExpectation(
        value=jnp.logaddexp(zeta, -rate),
        d_eta=-rate * r,
        d_eta_eta=-rate * r + rate**2 * spread,
        d_disp=1.0 - r,
        d_eta_disp=rate * spread,
        d_disp_disp=spread,
    )


def _zip_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    assert x.disp_mean is not None and x.disp_variance is not None
    none = y == 0
    zero = expected_over_several(_zip_point, only(none, x), STRIP)
    nothing = jnp.zeros_like(y)
    count = RowExpectation(*POISSON.expected(y, x)[:3], nothing, nothing, nothing)
    value, slope, bend = scalar_softplus(x.disp_mean, x.disp_variance)
    found = choose_rows(none, zero, count)
    assert found.d_disp is not None and found.d_disp_disp is not None
    return found._replace(value=found.value - value, d_disp=found.d_disp - slope, d_disp_disp=found.d_disp_disp - bend)


def zero_inflated_mean(eta: Array, disp: Array) -> Array:
    """Return (1 - pi) e^eta."""
    return jnp.exp(eta) * jax.nn.sigmoid(-disp)


def inflated_variance(mean: Array, zeta: Array, relative: Array | float) -> Array:
    """Return the variance of zero-inflated counts of variance m + relative m^2, m their own mean."""
    # counts of mean m and variance m + c m^2:  Var y = (1 - pi) (m + c m^2 + pi m^2)
    share = jax.nn.sigmoid(-zeta)
    m = mean / share
    return share * (m + (relative + 1.0 - share) * m**2)


def start(y: Array) -> Array:
    """Return rough predictors; of zeros as if they were half a typical count."""
    some = jnp.sum(y) / jnp.maximum(jnp.sum(y > 0), 1)
    return jnp.log(jnp.where(y > 0, y, 0.5 * some) + 0.1)


def start_zeta(y: Array, eta: Array, w: Array) -> Array:
    """Return zeta as if half of the zeros were no counts."""
    share = jnp.clip(jnp.sum(w * (y == 0)) / jnp.sum(w), 0.02, 0.98)
    return jnp.log(0.5 * share) - jnp.log1p(-0.5 * share)


def start_hurdle(y: Array, eta: Array, w: Array) -> Array:
    """Return zeta for the share of zeros."""
    share = jnp.clip(jnp.sum(w * (y == 0)) / jnp.sum(w), 0.001, 0.999)
    return jnp.log(share) - jnp.log1p(-share)


def or_zero(key: Array, zeta: Array, counts: Array) -> Array:
    """Return the counts, or zero with probability sigmoid(zeta)."""
    return jnp.where(jax.random.bernoulli(key, jax.nn.sigmoid(zeta), counts.shape), 0.0, counts)


def _zip_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    first, second = jax.random.split(key)
    assert disp is not None
    return or_zero(first, disp, POISSON.draw(second, eta, None))


# --- hurdle Poisson: disp = zeta ----------------------------------------------------------------------------

# log p(y) = -softplus(zeta) + y eta - rate - log y! - log(1 - e^-rate) for y > 0;  log p(0) = -softplus(-zeta)


@jax.custom_jvp
def truncation(eta: Array) -> Array:
    """Return -log(1 - e^-rate)."""
    return cloglog_loss(-eta)[0]


@jax.custom_jvp
def _truncation_slope(eta: Array) -> Array:
    return -cloglog_loss(-eta)[1]


truncation.defjvp(lambda at, moves: (truncation(*at), _truncation_slope(*at) * moves[0]))
_truncation_slope.defjvp(lambda at, moves: (_truncation_slope(*at), cloglog_loss(-at[0])[2] * moves[0]))


def _hurdle_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    count = POISSON.log_kernel(y, eta, None) + truncation(eta)
    return jnp.where(y == 0, -softplus(-disp), count - softplus(disp))


def expected_hurdle(y: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return -E softplus(-zeta) for zeros, -E softplus(zeta) for the others, with derivatives in the mean of zeta."""
    value, slope, bend = scalar_softplus(mean, variance)
    none = y == 0
    ones = jnp.ones_like(y)
    return jnp.where(none, mean - value, -value), jnp.where(none, 1.0 - slope, -slope), -bend * ones


def _hurdle_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    assert x.disp_mean is not None and x.disp_variance is not None
    some = y > 0
    own = only(some, x)
    value, slope, bend = expected_cloglog_loss(-own.mean, own.variance)
    count = POISSON.expected(y, own)
    jump, jump_slope, jump_bend = expected_hurdle(y, x.disp_mean, x.disp_variance)
    return RowExpectation(
        value=jnp.where(some, count.value + value, 0.0) + jump,
        d_eta=jnp.where(some, count.d_eta - slope, 0.0),
        d_eta_eta=jnp.where(some, count.d_eta_eta + bend, 0.0),
        d_disp=jump_slope,
        d_eta_disp=jnp.zeros_like(y),
        d_disp_disp=jump_bend,
    )


def _truncated_mean(eta: Array) -> Array:
    """Return rate / (1 - e^-rate), the mean of a count that is not zero."""
    rate = jnp.exp(eta)
    return jnp.where(rate < 1e-8, 1.0 + 0.5 * rate, rate / jnp.where(rate < 1e-8, 1.0, -jnp.expm1(-rate)))


def _hurdle_mean(eta: Array, disp: Array) -> Array:
    return jax.nn.sigmoid(-disp) * _truncated_mean(eta)


def _hurdle_variance(eta: Array, disp: Array) -> Array:
    # E y^2 of a count that is not zero is m (1 + rate)
    m, share = _truncated_mean(eta), jax.nn.sigmoid(-disp)
    return share * (m * (1.0 + jnp.exp(eta)) - share * m**2)


def positive_poisson(key: Array, eta: Array) -> Array:
    """Draw counts that are not zero: the first event falls into the interval, the others behind it follow freely."""
    first, rest = jax.random.split(key)
    rate = jnp.exp(eta)
    u = jax.random.uniform(first, eta.shape, eta.dtype)
    at = -jnp.log1p(u * jnp.expm1(-rate))  # the time of the first, below the rate
    return 1.0 + jax.random.poisson(rest, jnp.maximum(rate - at, 0.0)).astype(eta.dtype)


def _hurdle_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    first, second = jax.random.split(key)
    assert disp is not None
    return or_zero(first, disp, positive_poisson(second, eta))


ZERO_INFLATED_POISSON = Family(
    name="zero_inflated_poisson",
    link="log",
    extras=(ZERO,),
    log_kernel=_zip_kernel,
    log_normaliser=lambda y, disp: POISSON.log_normaliser(y, None),
    expected=_zip_expected,
    mean=jnp.exp,
    variance=lambda mean, disp: inflated_variance(mean, disp, 0.0),
    start=start,
    draw=_zip_draw,
    mean_given=zero_inflated_mean,
    start_extras=lambda y, eta, w: start_zeta(y, eta, w)[None],
    log_concave=False,
    discrete=True,
)
HURDLE_POISSON = Family(
    name="hurdle_poisson",
    link="log",
    extras=(ZERO,),
    log_kernel=_hurdle_kernel,
    log_normaliser=lambda y, disp: POISSON.log_normaliser(y, None),
    expected=_hurdle_expected,
    mean=_truncated_mean,
    variance=no_normaliser,
    start=start,
    draw=_hurdle_draw,
    mean_given=_hurdle_mean,
    variance_given=_hurdle_variance,
    start_extras=lambda y, eta, w: start_hurdle(y, eta, w)[None],
    discrete=True,
)
