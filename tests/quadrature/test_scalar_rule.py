"""Expectations over a shared scalar and the gamma functions behind them, against independent sums and integrals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from natvi.quadrature.gamma_functions import log_gamma_ratio, stirling_remainder
from natvi.quadrature.scalar_rule import expected_over_scalar
from natvi.x64 import float64
from oracles import normal_rule
from strategies import quick_jit


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


LOGS = np.linspace(-40, 40, 161)
COUNTS = np.array([0.0, 1.0, 2.0, 7.0, 40.0, 3000.0])


def test_log_gamma_ratio():
    """For whole y it is the sum of log(k + x) for k < y."""
    got = quick_jit(jax.vmap(lambda a: log_gamma_ratio(jnp.asarray(COUNTS), a)))(jnp.asarray(LOGS))
    x = np.exp(LOGS)[:, None]
    for i, y in enumerate(COUNTS):
        k = np.arange(int(y))
        share = x / (k + x)
        exact = np.log(k + x).sum(axis=1), share.sum(axis=1), (share * (k / (k + x))).sum(axis=1)
        for one, other in zip(got, exact, strict=True):
            np.testing.assert_allclose(one[:, i], other, rtol=1e-13, atol=1e-13 * y + 1e-11 * (y > 0))


def test_stirling_remainder():
    got = [np.asarray(a) for a in quick_jit(jax.vmap(stirling_remainder))(jnp.asarray(LOGS))]
    a = LOGS[LOGS < 4]
    x = np.exp(a)
    digamma, trigamma = scipy.special.digamma(x), scipy.special.polygamma(1, x)
    exact = (
        scipy.special.gammaln(x) - (x - 0.5) * a + x - 0.5 * np.log(2 * np.pi),
        x * digamma - x * a + 0.5,
        x * digamma + x**2 * trigamma - x * a - x,
    )
    for one, other in zip(got, exact, strict=True):
        np.testing.assert_allclose(one[: len(a)], other, rtol=1e-12, atol=1e-11)
    # 1/(12 x) - 1/(360 x^3) + 1/(1260 x^5) further out
    far = np.exp(-LOGS[LOGS > 4])
    np.testing.assert_allclose(got[0][LOGS > 4], far / 12 - far**3 / 360 + far**5 / 1260, rtol=1e-10)


@quick_jit
def stated_and_differentiated(a):
    """Slope and bend of the log-ratio and slope of the remainder: as stated, and by automatic differentiation."""
    y = jnp.asarray(COUNTS)
    stated = (*log_gamma_ratio(y, a)[1:], stirling_remainder(a)[1])
    slope, bend = (jax.jacobian(lambda a, k=k: log_gamma_ratio(y, a)[k])(a) for k in (0, 1))
    return stated, (slope, bend, jax.grad(lambda a: stirling_remainder(a)[0])(a))


@pytest.mark.parametrize("a", [-3.0, 0.0, 0.7, 5.0])
def test_derivatives_are_those_of_the_value(a):
    """Automatic differentiation passes through; a = 0 is where two formulas meet."""
    (slope, bend, remainder), found = stated_and_differentiated(jnp.asarray(a))
    np.testing.assert_allclose(found[0], slope, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[1], bend, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found[2], remainder, rtol=1e-12)


def test_expectations_over_a_scalar():
    """log(1 + e^a) and its slope at many means and sds; a scalar's rule is exact for straight lines."""
    rng = np.random.default_rng(0)
    m, s = rng.uniform(-30, 30, 300), 10 ** rng.uniform(-4, np.log10(30), 300)

    def functions(a: jax.Array) -> tuple[jax.Array, ...]:
        return jnp.stack([jax.nn.softplus(a), a, jnp.ones_like(a)]), jax.nn.sigmoid(a)

    many = quick_jit(jax.vmap(lambda m, v: expected_over_scalar(functions, m, v)))
    values, slope = (np.asarray(a) for a in many(jnp.asarray(m), jnp.asarray(s**2)))
    z, log_w = normal_rule(14.0, 14.0)
    x, w = m[:, None] + s[:, None] * z, np.exp(log_w)
    np.testing.assert_allclose(values[:, 0], np.logaddexp(0.0, x) @ w, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(slope, scipy.special.expit(x) @ w, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(values[:, 1], m, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(values[:, 2], np.ones(300), rtol=1e-12)


@pytest.mark.parametrize("s", [100.0, 1e4])
def test_huge_variance(s):
    got = expected_over_scalar(lambda a: (jnp.maximum(a, 0.0),), jnp.zeros(()), jnp.asarray(s**2))
    np.testing.assert_allclose(got[0], s / np.sqrt(2 * np.pi), rtol=1e-4)
    far, _, _ = log_gamma_ratio(jnp.asarray([3.0]), jnp.asarray(10 * s))
    np.testing.assert_allclose(far, [30 * s], rtol=1e-12)
