"""The softplus rule against brute force, over all means and variances that models meet."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from natvi.quadrature.softplus import expected_softplus, log1p_unit
from natvi.quadrature.trapezoid import trapezoid
from natvi.x64 import float64
from strategies import panels, quick_jit


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


one_by_one = quick_jit(jax.vmap(expected_softplus))
in_one_batch = quick_jit(expected_softplus)
BOTH = pytest.mark.parametrize("rule", [one_by_one, in_one_batch], ids=["one by one", "in one batch"])


@cache
def points() -> tuple[np.ndarray, np.ndarray]:
    """Draw means and sds over the whole range, and as many again where the rule is least accurate."""
    rng = np.random.default_rng(0)
    m = np.concatenate([rng.uniform(-30, 30, 400), rng.uniform(-3, 3, 400), [-30, -30, 30, 30]])
    s = np.concatenate([10 ** rng.uniform(-4, np.log10(30), 400), rng.uniform(0.3, 2, 400), [1e-4, 30] * 2])
    return m, s


@cache
def brute_force() -> np.ndarray:
    """Return E softplus, E sigmoid, E sigmoid' at the points, `(3, k)`, relatively accurate."""
    z, w = panels(-14.0, 20.0, 272)
    w = w * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    exact = []
    for m, s in zip(*points(), strict=True):
        right, left = np.logaddexp(0.0, m + s * z), np.logaddexp(0.0, -m - s * z)
        exact.append((w @ right, w @ np.exp(-left), w @ np.exp(-left - right)))
    return np.array(exact).T


@BOTH
def test_softplus_and_its_derivatives(rule):
    m, s = points()
    exact = brute_force()
    assert exact[0].min() < 1e-12 and exact[2][m > 0].min() < 1e-12
    for found, expected in zip(rule(jnp.asarray(m), jnp.asarray(s**2)), exact, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=0)


def test_without_variance_it_is_the_function_itself():
    m = np.linspace(-30, 30, 61)
    value, slope, curvature = one_by_one(jnp.asarray(m), jnp.zeros(61))
    sigmoid = np.exp(-np.logaddexp(0.0, -m))
    np.testing.assert_allclose(value, np.logaddexp(0.0, m), rtol=1e-8)
    np.testing.assert_allclose(slope, sigmoid, rtol=1e-8)
    np.testing.assert_allclose(curvature, sigmoid * np.exp(-np.logaddexp(0.0, m)), rtol=1e-8)


@BOTH
def test_reflection(rule):
    """softplus(x) - softplus(-x) = x and sigmoid(x) + sigmoid(-x) = 1 survive the expectation."""
    m, s = points()
    right, left = (rule(jnp.asarray(sign * m), jnp.asarray(s**2)) for sign in (1.0, -1.0))
    np.testing.assert_allclose(right[0] - left[0], m, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(right[1] + left[1], np.ones(len(m)), rtol=1e-8)
    np.testing.assert_allclose(right[2], left[2], rtol=0, atol=2e-8)


@pytest.mark.parametrize("s", [1e-4, 0.1, 0.9, 4.0, 30.0])
def test_monotone_in_the_mean_and_above_jensen(s):
    m = np.linspace(-30, 30, 4001)
    value, slope, curvature = (np.asarray(a) for a in in_one_batch(jnp.asarray(m), jnp.full(4001, s**2)))
    assert np.all(np.diff(value) > 0)
    assert np.all(value >= np.logaddexp(0.0, m) * (1 - 1e-8))
    assert np.all(slope > 0) and np.all(slope < 1 + 1e-8) and np.all(curvature > 0)


@pytest.mark.parametrize("s", [70.0, 1e3, 1e5])
def test_huge_variances_cost_no_more_nodes(s):
    """Beyond sd 64 softplus is max(x, 0) plus a bump; E max(x, 0) = m Phi(m/s) + s phi(m/s)."""
    m = np.array([-30.0, 0.0, 30.0])
    value, slope, curvature = (np.asarray(a) for a in in_one_batch(jnp.asarray(m), jnp.full(3, s**2)))
    kink = m * scipy.stats.norm.cdf(m / s) + s * scipy.stats.norm.pdf(m / s)
    np.testing.assert_allclose(value - kink, np.pi**2 / 6 * scipy.stats.norm.pdf(m / s) / s, rtol=2e-3)
    np.testing.assert_allclose(slope, scipy.stats.norm.cdf(m / s), atol=2.0 / s**2)
    np.testing.assert_allclose(curvature, scipy.stats.norm.pdf(m / s) / s, rtol=1e-3)


def test_scaled_by_an_exponent():
    """e^{log_scale} joins the exponents of the density: neither factor need be a number by itself."""
    m, s = points()
    plain = in_one_batch(jnp.asarray(m), jnp.asarray(s**2))
    scale = np.random.default_rng(2).uniform(-20, 20, len(m))
    scaled = quick_jit(expected_softplus)(jnp.asarray(m), jnp.asarray(s**2), jnp.asarray(scale))
    for one, other in zip(plain, scaled, strict=True):
        np.testing.assert_allclose(other, np.exp(scale) * one, rtol=1e-12)
    # far to the left softplus is e^x, and e^{800} E e^x = e^{800 - 2000 + 1600/2}; on the right it overflows
    value, _, _ = expected_softplus(jnp.asarray([-2e3, 0.0]), jnp.asarray([1600.0, 1e4]), jnp.full(2, 800.0))
    np.testing.assert_allclose(np.log(value[0]), -400.0, atol=1e-7)
    assert value[1] == np.inf
    # on both sides of the largest sd that takes nodes
    near, far = (
        expected_softplus(jnp.asarray([90.0, -90.0]), jnp.full(2, s**2), jnp.ones(2)) for s in (64 - 1e-7, 64 + 1e-7)
    )
    for one, other in zip(near, far, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_nan_stays_nan():
    """A candidate without a factor has moments that are NaN; no value may hide that."""
    value, slope, curvature = in_one_batch(jnp.zeros(2), jnp.asarray([jnp.nan, 1.0]))
    assert np.isnan(value[0]) and np.isnan(slope[0]) and np.isnan(curvature[0])


@pytest.mark.parametrize("unusable", [np.nan, np.inf, 1e6])
def test_rows_beyond_the_rule_do_not_decide_the_number_of_nodes(monkeypatch, unusable):
    """A candidate without a factor must not cost more than a good one."""
    steps = []

    def spy(f, m, s, centre, h, log_scale=None):
        steps.append(float(h))
        return trapezoid(f, m, s, centre, h, log_scale)

    monkeypatch.setattr("natvi.quadrature.softplus.trapezoid", spy)
    expected_softplus(jnp.zeros(2), jnp.asarray([4.0, unusable]))
    expected_softplus(jnp.zeros(2), jnp.asarray([4.0, 4.0]))
    assert steps[0] == steps[1]


def test_log1p_unit():
    x = np.concatenate([[1e-300, 1e-30, 1e-8, 1.0], np.random.default_rng(1).uniform(0, 1, 10_000)])
    np.testing.assert_allclose(log1p_unit(jnp.asarray(x)), np.log1p(x), rtol=1e-13, atol=0)
    assert float(log1p_unit(jnp.zeros(()))) == 0.0


def test_dtype_is_kept():
    with jax.enable_x64(False):
        narrow = jnp.zeros(3, jnp.float32)
        assert {a.dtype for a in jax.eval_shape(expected_softplus, narrow, narrow)} == {np.dtype(np.float32)}
    wide = jnp.zeros(3)
    assert {a.dtype for a in jax.eval_shape(expected_softplus, wide, wide)} == {np.dtype(np.float64)}


@pytest.mark.parametrize("num_wide", [0, 3, 100, 2000])
def test_few_wide_rows_are_treated_apart(num_wide):
    """None, few, as many as have room, and more than that: each row is what it is alone."""
    rng = np.random.default_rng(1)
    m, s = rng.normal(0.0, 4.0, 2048), rng.uniform(0.1, 1.0, 2048)
    s[rng.choice(2048, num_wide, replace=False)] = rng.uniform(1.5, 80.0, num_wide)
    together = in_one_batch(jnp.asarray(m), jnp.asarray(s**2))
    alone = one_by_one(jnp.asarray(m), jnp.asarray(s**2))
    for found, expected in zip(together, alone, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7)
