"""Bernoulli and binomial responses with the links logit, probit and cloglog.

A binomial row is a Bernoulli row whose response is the proportion of successes and whose weight is the number of
trials; the constant log C(n, n y) is added by the rows. So the functions of a binomial row take y anywhere in [0, 1].
The rarer outcome has the share k = min(y, 1 - y), and t = -eta if y > 1/2, else eta, so that a response of 0 or 1 is
the loss of t alone and small values keep their relative accuracy.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array

from natvi.families.family import Family, no_normaliser
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.quadrature.binary_losses import (
    cloglog_loss,
    expected_cloglog_loss,
    expected_probit_loss,
    probit_loss,
    probit_loss_of_one,
)
from natvi.quadrature.softplus import expected_softplus, softplus


def _sign_and_share(y: Array) -> tuple[Array, Array]:
    return jnp.where(y > 0.5, -1.0, 1.0).astype(y.dtype), jnp.minimum(y, 1.0 - y)


def _variance(mean: Array, disp: Array | None) -> Array:
    return mean * (1.0 - mean)


def _drawn(mean: Callable[[Array], Array], key: Array, eta: Array) -> Array:
    return jax.random.bernoulli(key, mean(eta)).astype(eta.dtype)


def _with_slopes(loss: Callable[..., tuple[Array, Array, Array]]) -> Callable[..., Array]:
    """Return the first part of a loss (f, f', f'') of t, differentiated in t by the other parts.

    The library's functions and their derivatives cost thirty times as much.
    """

    @jax.custom_jvp
    def value(t: Any, *fixed: Any) -> Array:
        return loss(t, *fixed)[0]

    @jax.custom_jvp
    def slope(t: Any, *fixed: Any) -> Array:
        return loss(t, *fixed)[1]

    value.defjvp(lambda at, moves: (value(*at), slope(*at) * moves[0]))
    slope.defjvp(lambda at, moves: (slope(*at), loss(*at)[2] * moves[0]))
    return value


# --- logit -------------------------------------------------------------------------------------------------


def _logit_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    # log p = k t - softplus(t)
    sign, share = _sign_and_share(y)
    return share * sign * eta - softplus(sign * eta)


def _logit_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    sign, share = _sign_and_share(y)
    m = sign * x.mean
    value, slope, curvature = expected_softplus(m, x.variance)
    return RowExpectation(share * m - value, sign * (share - slope), -curvature)


def _logit_start(y: Array) -> Array:
    return 2.0 * y - 1.0


def _logit_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    return _drawn(jax.nn.sigmoid, key, eta)


# --- probit ------------------------------------------------------------------------------------------------


_probit_value, _probit_value_of_one = _with_slopes(probit_loss), _with_slopes(probit_loss_of_one)


def _probit_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    # log p = log Phi(-t): y is 0 or 1
    sign, _ = _sign_and_share(y)
    return -_probit_value_of_one(sign * eta)


def _probit_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    sign, _ = _sign_and_share(y)
    value, slope, curvature = expected_probit_loss(sign * x.mean, x.variance)
    return RowExpectation(-value, -sign * slope, -curvature)


def _probit_share_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    # log p = (1 - k) log Phi(-t) + k log Phi(t)
    sign, share = _sign_and_share(y)
    return -_probit_value(sign * eta, share)


def _probit_share_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    sign, share = _sign_and_share(y)
    value, slope, curvature = expected_probit_loss(sign * x.mean, x.variance, share)
    return RowExpectation(-value, -sign * slope, -curvature)


def _probit_start(y: Array) -> Array:
    return 1.2 * y - 0.6


def _probit_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    return _drawn(ndtr, key, eta)


# --- cloglog -----------------------------------------------------------------------------------------------


_cloglog_value = _with_slopes(cloglog_loss)  # -log(1 - exp(-e^-t))


def _cloglog_kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    # log p = y log(1 - exp(-e^eta)) - (1 - y) e^eta
    success = jnp.where(y > 0, -y * _cloglog_value(-eta), 0.0)
    return success - jnp.where(y < 1, (1.0 - y) * jnp.exp(jnp.where(y < 1, eta, 0.0)), 0.0)


def _cloglog_expected(y: Array, x: PredictorMoments) -> RowExpectation:
    some = y > 0  # rows without success need no quadrature and must not refine the step of the others
    value, slope, curvature = expected_cloglog_loss(jnp.where(some, -x.mean, 0.0), jnp.where(some, x.variance, 0.0))
    # E e^eta = e^{m + v/2}
    rate = jnp.where(y < 1, (1.0 - y) * jnp.exp(x.mean + 0.5 * x.variance), 0.0)
    return RowExpectation(-y * value - rate, y * slope - rate, -y * curvature - rate)


def _cloglog_mean(eta: Array) -> Array:
    return -jnp.expm1(-jnp.exp(eta))


def _cloglog_start(y: Array) -> Array:
    # the link of a proportion that is drawn half-way to 1/2
    return jnp.log(-jnp.log1p(-(0.25 + 0.5 * y)))


def _cloglog_draw(key: Array, eta: Array, disp: Array | None) -> Array:
    return _drawn(_cloglog_mean, key, eta)


# --- the table ---------------------------------------------------------------------------------------------

LOGIT = Family(
    name="bernoulli",
    link="logit",
    extras=(),
    log_kernel=_logit_kernel,
    log_normaliser=no_normaliser,
    expected=_logit_expected,
    mean=jax.nn.sigmoid,
    variance=_variance,
    discrete=True,
    start=_logit_start,
    draw=_logit_draw,
)
PROBIT = Family(
    name="bernoulli",
    link="probit",
    extras=(),
    log_kernel=_probit_kernel,
    log_normaliser=no_normaliser,
    expected=_probit_expected,
    mean=ndtr,
    variance=_variance,
    discrete=True,
    start=_probit_start,
    draw=_probit_draw,
)
CLOGLOG = Family(
    name="bernoulli",
    link="cloglog",
    extras=(),
    log_kernel=_cloglog_kernel,
    log_normaliser=no_normaliser,
    expected=_cloglog_expected,
    mean=_cloglog_mean,
    variance=_variance,
    discrete=True,
    start=_cloglog_start,
    draw=_cloglog_draw,
)

# A binomial row is a bernoulli row whose response is a proportion and whose weight is the number of trials. With the
# probit link a response of 0 or 1 is half the work.
BINOMIAL = (
    LOGIT._replace(name="binomial"),
    PROBIT._replace(name="binomial", log_kernel=_probit_share_kernel, expected=_probit_share_expected),
    CLOGLOG._replace(name="binomial"),
)
