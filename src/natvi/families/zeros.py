"""Counts with too many zeros: zero-inflated and hurdle Poisson and negative binomial, log link.

With pi = sigmoid(zeta) the same in all rows: zero-inflated counts are 0 with probability pi, else counts, which may be
0 too; hurdle counts are 0 with probability pi, else counts that are not.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from natvi.families.count import NEGATIVE_BINOMIAL, POISSON
from natvi.families.family import Extra, Family
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.families.several import expected_over_several, with_derivatives
from natvi.quadrature.binary_losses import cloglog_loss, expected_cloglog_loss
from natvi.quadrature.softplus import expected_softplus, softplus

LARGEST_LOG = 300.0  # of a rate whose square must be a number
STRIP = 0.8
ZERO, PHI = Extra("zero", "logit"), Extra("phi", power=-0.5)


def _log_rate(eta: Array) -> Array:
    return jnp.minimum(eta, LARGEST_LOG)


def _scalar_softplus(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    value, slope, bend = expected_softplus(mean[None], variance[None])
    return value[0], slope[0], bend[0]


def _only(rows: Array, x: PredictorMoments) -> PredictorMoments:
    """Return the moments, other rows having none: they must not refine the step."""
    return x._replace(
        mean=jnp.where(rows, x.mean, 0.0),
        variance=jnp.where(rows, x.variance, 0.0),
        covariance=None if x.covariance is None else jnp.where(rows, x.covariance, 0.0),
    )


def _where(rows: Array, one: RowExpectation, other: RowExpectation) -> RowExpectation:
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
    zero = expected_over_several(_zip_point, _only(none, x), STRIP)
    nothing = jnp.zeros_like(y)
    count = RowExpectation(*POISSON.expected(y, x)[:3], nothing, nothing, nothing)
    value, slope, bend = _scalar_softplus(x.disp_mean, x.disp_variance)
    found = _where(none, zero, count)
    assert found.d_disp is not None and found.d_disp_disp is not None
    return found._replace(value=found.value - value, d_disp=found.d_disp - slope, d_disp_disp=found.d_disp_disp - bend)


def _zero_inflated_mean(eta: Array, disp: Array) -> Array:
    return jnp.exp(eta) * jax.nn.sigmoid(-disp)


def _inflated_variance(mean: Array, zeta: Array, relative: Array | float) -> Array:
    # counts of mean m and variance m + c m^2:  Var y = (1 - pi) (m + c m^2 + pi m^2)
    share = jax.nn.sigmoid(-zeta)
    m = mean / share
    return share * (m + (relative + 1.0 - share) * m**2)


def _start(y: Array) -> Array:
    # of zeros, as if half of them were counts
    some = jnp.sum(y) / jnp.maximum(jnp.sum(y > 0), 1)
    return jnp.log(jnp.where(y > 0, y, 0.5 * some) + 0.1)


def _start_zeta(y: Array, eta: Array, w: Array) -> Array:
    share = jnp.clip(jnp.sum(w * (y == 0)) / jnp.sum(w), 0.02, 0.98)
    return jnp.log(0.5 * share) - jnp.log1p(-0.5 * share)


def _start_hurdle(y: Array, eta: Array, w: Array) -> Array:
    share = jnp.clip(jnp.sum(w * (y == 0)) / jnp.sum(w), 0.001, 0.999)
    return jnp.log(share) - jnp.log1p(-share)


def _or_zero(key: Array, zeta: Array, counts: Array) -> Array:
    return jnp.where(jax.random.bernoulli(key, jax.nn.sigmoid(zeta), counts.shape), 0.0, counts)


def _zip_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    first, second = jax.random.split(key)
    assert disp is not None
    return _or_zero(first, disp, POISSON.draw(second, eta, None))


# --- hurdle Poisson: disp = zeta ----------------------------------------------------------------------------

# log p(y) = -softplus(zeta) + y eta - rate - log y! - log(1 - e^-rate) for y > 0;  log p(0) = -softplus(-zeta)


@jax.custom_jvp
def _truncation(eta: Array) -> Array:
    """Return -log(1 - e^-rate)."""
    return cloglog_loss(-eta)[0]


@jax.custom_jvp
def _truncation_slope(eta: Array) -> Array:
    return -cloglog_loss(-eta)[1]


_truncation.defjvp(lambda at, moves: (_truncation(*at), _truncation_slope(*at) * moves[0]))
_truncation_slope.defjvp(lambda at, moves: (_truncation_slope(*at), cloglog_loss(-at[0])[2] * moves[0]))


def _hurdle_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    count = POISSON.log_kernel(y, eta, None) + _truncation(eta)
    return jnp.where(y == 0, -softplus(-disp), count - softplus(disp))


def _expected_hurdle(y: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return -E softplus(-zeta) for zeros, -E softplus(zeta) for the others, with derivatives in the mean of zeta."""
    value, slope, bend = _scalar_softplus(mean, variance)
    none = y == 0
    ones = jnp.ones_like(y)
    return jnp.where(none, mean - value, -value), jnp.where(none, 1.0 - slope, -slope), -bend * ones


def _hurdle_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    assert x.disp_mean is not None and x.disp_variance is not None
    some = y > 0
    own = _only(some, x)
    value, slope, bend = expected_cloglog_loss(-own.mean, own.variance)
    count = POISSON.expected(y, own)
    jump, jump_slope, jump_bend = _expected_hurdle(y, x.disp_mean, x.disp_variance)
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


def _positive_poisson(key: Array, eta: Array) -> Array:
    """Draw counts that are not zero: the first event falls into the interval, the others behind it follow freely."""
    first, rest = jax.random.split(key)
    rate = jnp.exp(eta)
    u = jax.random.uniform(first, eta.shape, eta.dtype)
    at = -jnp.log1p(u * jnp.expm1(-rate))  # the time of the first, below the rate
    return 1.0 + jax.random.poisson(rest, jnp.maximum(rate - at, 0.0)).astype(eta.dtype)


def _hurdle_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    first, second = jax.random.split(key)
    assert disp is not None
    return _or_zero(first, disp, _positive_poisson(second, eta))


# --- the same with negative binomial counts: disp = (a = log phi, zeta) -------------------------------------


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


def _nothing(y: Array, disp: Array | None) -> Array:
    return jnp.zeros_like(y)


_zinb_point = with_derivatives(lambda eta, disp: jnp.logaddexp(disp[1], -_log_none(eta, disp[0])))


def _zinb_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    assert x.disp_mean is not None and x.disp_variance is not None
    none = y == 0
    zero = expected_over_several(_zinb_point, _only(none, x), STRIP)
    count = _with_zeta(NEGATIVE_BINOMIAL.expected(y, _count_moments(_only(~none, x))))
    value, slope, bend = _scalar_softplus(x.disp_mean[1], x.disp_variance[1, 1])
    return _add_zeta(_where(none, zero, count), -value, -slope, -bend)


def _hurdle_nb_log_density(y: Array, eta: Array, disp: Array | None) -> Array:
    assert disp is not None
    some = NEGATIVE_BINOMIAL.log_density(y, eta, disp[0]) + _nb_truncation(eta, disp[0])
    return jnp.where(y == 0, -softplus(-disp[1]), some - softplus(disp[1]))


def _nb_truncation(eta: Array, a: Array) -> Array:
    # -log(1 - e^-k), log k = a + log softplus(eta - a); far to the left softplus is e^(eta - a)
    t = eta - a
    log_k = a + jnp.where(t < -30.0, t, jnp.log(softplus(jnp.maximum(t, -30.0))))
    return _truncation(log_k)


_hurdle_nb_point = with_derivatives(_nb_truncation)


def _hurdle_nb_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    assert x.disp_mean is not None and x.disp_variance is not None
    some = y > 0
    own = _count_moments(_only(some, x))
    count = jax.tree.map(
        jnp.add, NEGATIVE_BINOMIAL.expected(y, own), expected_over_several(_hurdle_nb_point, own, STRIP)
    )
    count = jax.tree.map(lambda part: jnp.where(some, part, 0.0), count)
    return _add_zeta(_with_zeta(count), *_expected_hurdle(y, x.disp_mean[1], x.disp_variance[1, 1]))


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
    return _or_zero(first, disp[1], NEGATIVE_BINOMIAL.draw(second, eta, disp[0]))


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
    return _or_zero(for_zero, disp[1], _positive_poisson(for_count, found))


def _start_phi(y: Array, eta: Array, w: Array) -> Array:
    return jnp.zeros((), eta.dtype)


ZERO_INFLATED_POISSON = Family(
    name="zero_inflated_poisson",
    link="log",
    extras=(ZERO,),
    log_kernel=_zip_kernel,
    log_normaliser=lambda y, disp: POISSON.log_normaliser(y, None),
    expected=_zip_expected,
    mean=jnp.exp,
    variance=lambda mean, disp: _inflated_variance(mean, disp, 0.0),
    start=_start,
    draw=_zip_draw,
    mean_given=_zero_inflated_mean,
    start_extras=lambda y, eta, w: _start_zeta(y, eta, w)[None],
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
    variance=_nothing,
    start=_start,
    draw=_hurdle_draw,
    mean_given=_hurdle_mean,
    variance_given=_hurdle_variance,
    start_extras=lambda y, eta, w: _start_hurdle(y, eta, w)[None],
    discrete=True,
)
ZERO_INFLATED_NEGATIVE_BINOMIAL = Family(
    name="zero_inflated_negative_binomial",
    link="log",
    extras=(PHI, ZERO),
    log_kernel=_zinb_log_density,
    log_normaliser=_nothing,
    expected=_zinb_expected,
    mean=jnp.exp,
    variance=lambda mean, disp: _inflated_variance(mean, disp[1], jnp.exp(-disp[0])),
    start=_start,
    draw=_zinb_draw,
    mean_given=lambda eta, disp: _zero_inflated_mean(eta, disp[1]),
    start_extras=lambda y, eta, w: jnp.stack([_start_phi(y, eta, w), _start_zeta(y, eta, w)]),
    log_concave=False,
    discrete=True,
)
HURDLE_NEGATIVE_BINOMIAL = Family(
    name="hurdle_negative_binomial",
    link="log",
    extras=(PHI, ZERO),
    log_kernel=_hurdle_nb_log_density,
    log_normaliser=_nothing,
    expected=_hurdle_nb_expected,
    mean=jnp.exp,
    variance=_nothing,
    start=_start,
    draw=_hurdle_nb_draw,
    mean_given=_hurdle_nb_mean,
    variance_given=_hurdle_nb_variance,
    start_extras=lambda y, eta, w: jnp.stack([_start_phi(y, eta, w), _start_hurdle(y, eta, w)]),
    log_concave=False,
    discrete=True,
)
