"""The probit and cloglog rules against brute force, over all means and variances that models meet."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from natvi.quadrature.binary_losses import expected_cloglog_loss, expected_probit_loss
from natvi.quadrature.mills import mills_ratio
from natvi.x64 import float64
from oracles import assert_within, expected_loss
from strategies import quick_jit


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def probit(m: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return expected_probit_loss(m, v, jnp.zeros_like(m))


RULES = {
    ("probit", "one by one"): quick_jit(jax.vmap(probit)),
    ("probit", "in one batch"): quick_jit(probit),
    ("cloglog", "one by one"): quick_jit(jax.vmap(expected_cloglog_loss)),
    ("cloglog", "in one batch"): quick_jit(expected_cloglog_loss),
}


@cache
def points() -> tuple[np.ndarray, np.ndarray]:
    """Draw means and sds over the whole range, and as many again around the bend of the losses."""
    rng = np.random.default_rng(0)
    m = np.concatenate([rng.uniform(-30, 30, 300), rng.uniform(-6, 6, 300), [-30, -30, 30, 30]])
    s = np.concatenate([10 ** rng.uniform(-4, np.log10(30), 300), 10 ** rng.uniform(-1, 1, 300), [1e-4, 30] * 2])
    return m, s


@cache
def brute_force(link: str) -> np.ndarray:
    return expected_loss(link, *points())


@pytest.mark.parametrize(("link", "how"), RULES)
def test_losses_and_their_derivatives(link, how):
    m, s = points()
    value, slope, curvature = (np.asarray(a) for a in RULES[link, how](jnp.asarray(m), jnp.asarray(s**2)))
    exact = brute_force(link)
    assert exact[0].min() < 1e-100
    # the smallest number that keeps its digits is about 1e-290
    assert_within(value, exact[0], 1e-280)
    assert_within(slope, exact[1], 1e-280)
    assert_within(curvature, exact[2], 1e-9)


def test_probit_with_a_share_of_the_other_outcome():
    m, s = points()
    share = np.random.default_rng(1).uniform(0.01, 0.5, len(m))
    got = quick_jit(expected_probit_loss)(jnp.asarray(m), jnp.asarray(s**2), jnp.asarray(share))
    (value, slope, bend), (other, back, other_bend) = brute_force("probit"), expected_loss("probit", -m, s)
    assert_within(np.asarray(got[0]), (1 - share) * value + share * other, 0.0)
    assert_within(np.asarray(got[1]), (1 - share) * slope - share * back, 1e-8)
    assert_within(np.asarray(got[2]), (1 - share) * bend + share * other_bend, 0.0)


@pytest.mark.parametrize("s", [100.0, 1e3, 1e6])
def test_huge_variances_cost_no_more_nodes(s):
    """The probit loss is then max(t, 0)^2/2, the cloglog loss max(t, 0), but for what is small beside them."""
    m, v = jnp.asarray([-0.5 * s, 0.0, 0.5 * s]), jnp.full(3, s**2)
    a = np.asarray(m) / s
    below, bell = scipy.special.ndtr(a), np.exp(-0.5 * a**2) / np.sqrt(2 * np.pi)
    value, slope, curvature = (np.asarray(part) for part in RULES["probit", "in one batch"](m, v))
    np.testing.assert_allclose(value, 0.5 * s**2 * ((1 + a**2) * below + a * bell), rtol=5 / s)
    np.testing.assert_allclose(slope, s * (a * below + bell), rtol=5 / s + 1e-4)
    np.testing.assert_allclose(curvature, below, rtol=0.03)
    value, slope, _ = (np.asarray(part) for part in RULES["cloglog", "in one batch"](m, v))
    np.testing.assert_allclose(value, s * (a * below + bell), rtol=5 / s + 1e-4)
    np.testing.assert_allclose(slope, below, rtol=0.03)


@pytest.mark.parametrize("link", ["probit", "cloglog"])
def test_nan_and_infinity_stay_in_their_row(link):
    m, v = jnp.zeros(3), jnp.asarray([jnp.nan, 1.0, jnp.inf])
    value, slope, curvature = (np.asarray(a) for a in RULES[link, "in one batch"](m, v))
    assert np.isnan(value[0]) and np.isnan(slope[0]) and np.isnan(curvature[0])
    assert value[2] > 1e100
    np.testing.assert_allclose([value[1], slope[1], curvature[1]], expected_loss(link, np.zeros(1), np.ones(1))[:, 0])


def test_mills_ratio():
    u = np.concatenate([np.linspace(0, 30, 3001), np.geomspace(30, 1e8, 200)])
    exact = np.sqrt(np.pi / 2) * scipy.special.erfcx(u / np.sqrt(2))
    np.testing.assert_allclose(mills_ratio(jnp.asarray(u)), exact, rtol=1e-13)


@pytest.mark.parametrize("rule", [probit, expected_cloglog_loss])
def test_dtype_is_kept(rule):
    with jax.enable_x64(False):
        narrow = jnp.zeros(3, jnp.float32)
        assert {a.dtype for a in jax.eval_shape(rule, narrow, narrow)} == {np.dtype(np.float32)}
    wide = jnp.zeros(3)
    assert {a.dtype for a in jax.eval_shape(rule, wide, wide)} == {np.dtype(np.float64)}
