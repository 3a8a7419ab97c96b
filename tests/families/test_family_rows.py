"""Rows without dispersion against brute force: Poisson, and Bernoulli with its three links, proportions included."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from natvi.families.rows import PredictorMoments
from natvi.families.table import FAMILIES, find_family
from natvi.x64 import float64, to_host
from oracles import FIRST, MEANS, OFFSETS, SDS, SECOND, STEP, assert_within, expected_loss, normal_rule
from strategies import quick_jit

LINKS = ("logit", "probit", "cloglog")
PROPORTIONS = np.array([0.0, 1.0, 0.03, 0.5, 0.8])


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def grid(responses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return y, m, s of every combination."""
    y, m, s = np.meshgrid(responses, MEANS, SDS, indexing="ij")
    return y.ravel(), m.ravel(), s.ravel()


# --- Poisson -----------------------------------------------------------------------------------------------


def brute_poisson(y: float, m: np.ndarray, s: float) -> np.ndarray:
    z, log_w = normal_rule(14.0, s + 14.0)  # e^{s z} moves the mass to z = s
    linear = y * (m[..., None] + s * z) @ np.exp(log_w)
    rate = np.exp(m[..., None] + s * z + log_w).sum(axis=-1)
    return linear - rate - scipy.special.gammaln(y + 1.0)


def test_poisson_rows():
    responses = np.array([0.0, 3.0, 40.0])
    y, m, s = grid(responses)
    rows = quick_jit(lambda y, m, v: FAMILIES["poisson"].expected(y, PredictorMoments(m, v)))
    got = to_host(rows(jnp.asarray(y), jnp.asarray(m), jnp.asarray(s**2)))
    points = MEANS[:, None] + OFFSETS
    stencil = np.stack([[brute_poisson(b, points, c) for c in SDS] for b in responses]).swapaxes(1, 2).reshape(-1, 7)
    assert np.all(np.isfinite(stencil))
    np.testing.assert_allclose(got.value, stencil[:, 3], rtol=1e-7, atol=0)
    # differences of the oracle carry its rounding errors; nothing else excuses an absolute error
    rounding = 1e-14 * np.abs(stencil).max(axis=1)
    assert_within(got.d_eta, stencil @ FIRST, rounding / STEP)
    assert_within(got.d_eta_eta, stencil @ SECOND, rounding / STEP**2)


# --- Bernoulli, and binomial proportions -------------------------------------------------------------------


@cache
def brute_outcomes(link: str) -> tuple[np.ndarray, np.ndarray]:
    """Return E log P(y = 1) and E log P(y = 0) with first and second derivative in eta: `(3, k)` over means and sds."""
    m, s = (a.ravel() for a in np.meshgrid(MEANS, SDS, indexing="ij"))
    away = np.array([-1.0, 1.0, -1.0])[:, None]
    if link == "cloglog":
        with np.errstate(over="ignore"):
            rate = np.exp(m + 0.5 * s**2)
        return away * expected_loss(link, -m, s), np.stack([-rate, -rate, -rate])
    return away * expected_loss(link, -m, s), -expected_loss(link, m, s)


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "one by one"])
@pytest.mark.parametrize("link", LINKS)
def test_binary_rows(link, together):
    """A batch that mixes tiny and huge variances is as accurate as rows one by one."""
    y, m, s = grid(PROPORTIONS)
    family = find_family("binomial", link)

    def expected(y, m, v):
        return family.expected(y, PredictorMoments(m, v))

    rows = quick_jit(expected if together else jax.vmap(expected))
    got = to_host(rows(jnp.asarray(y), jnp.asarray(m), jnp.asarray(s**2)))
    success, failure = brute_outcomes(link)
    share = PROPORTIONS[:, None]
    exact = [(share * a + (1 - share) * b).ravel() for a, b in zip(success, failure, strict=True)]
    assert np.all(np.isfinite(exact)) and np.abs(exact[0]).min() < 1e-12
    assert_within(got.value, exact[0], 1e-280)
    # the two outcomes pull in opposite directions
    pull = (share * np.abs(success[1]) + (1 - share) * np.abs(failure[1])).ravel()
    assert_within(got.d_eta, exact[1], 1e-280 + 1e-7 * pull * (y % 1 > 0), 1e-6 if link == "logit" else 1e-7)
    assert_within(got.d_eta_eta, exact[2], 1e-8)


@pytest.mark.parametrize("link", LINKS)
def test_value_without_variance_is_the_density(link):
    """`expected` at a point is `log_density`, and its derivatives are those of `log_density`."""
    y, m = (a.ravel() for a in np.meshgrid(PROPORTIONS, np.linspace(-6, 4, 41), indexing="ij"))
    family = find_family("binomial", link)
    got = to_host(quick_jit(lambda y, m: family.expected(y, PredictorMoments(m, jnp.zeros_like(m))))(y, m))

    def one(y, eta):
        return family.log_density(y, eta, None)

    slope = jax.grad(one, 1)
    values = [np.asarray(quick_jit(jax.vmap(f))(y, m)) for f in (one, slope, jax.grad(slope, 1))]
    np.testing.assert_allclose(got.value, values[0], rtol=1e-8)
    np.testing.assert_allclose(got.d_eta, values[1], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(got.d_eta_eta, values[2], rtol=1e-6, atol=1e-8)


def test_a_probit_response_of_zero_or_one():
    """Half the work of a proportion, and the same numbers."""
    y, m, s = grid(np.array([0.0, 1.0]))
    one, share = (find_family(name, "probit") for name in ("bernoulli", "binomial"))
    y, m, v = jnp.asarray(y), jnp.asarray(m), jnp.asarray(s**2)
    for a, b in zip(*(f.expected(y, PredictorMoments(m, v))[:3] for f in (one, share)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)
    np.testing.assert_allclose(one.log_density(y, m, None), share.log_density(y, m, None), rtol=1e-13)


@pytest.mark.parametrize("link", LINKS)
def test_density_of_scipy(link):
    eta = np.concatenate([np.linspace(-30, 30, 61), [-800.0, 800.0]])
    family = find_family("bernoulli", link)
    with np.errstate(over="ignore"):
        mean = {
            "logit": scipy.special.expit(eta),
            "probit": scipy.special.ndtr(eta),
            "cloglog": -np.expm1(-np.exp(eta)),
        }[link]
    np.testing.assert_allclose(family.mean(jnp.asarray(eta)), mean, rtol=1e-13)
    for y in (0.0, 1.0):
        got = np.asarray(family.log_density(jnp.full(63, y), jnp.asarray(eta), None))
        assert not np.any(np.isnan(got)) and np.all(got <= 0)
        chance = mean if y else 1 - mean
        safe = (chance > 1e-3) & (chance < 1 - 1e-3)
        np.testing.assert_allclose(got[safe], scipy.stats.bernoulli.logpmf(y, mean[safe]), rtol=1e-11)
    score = jax.grad(lambda x: jnp.sum(family.log_density(jnp.ones(63), x, None)))(jnp.asarray(eta))
    bend = jax.jvp(jax.grad(lambda x: jnp.sum(family.log_density(jnp.ones(63), x, None))), (eta,), (np.ones(63),))[1]
    assert np.all(np.isfinite(score)) and np.all(np.isfinite(bend))


# --- overflow --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "link"), [("poisson", "log"), ("bernoulli", "cloglog")])
def test_overflow_is_minus_infinity_not_nan(name, link):
    family = find_family(name, link)
    got = family.expected(
        jnp.asarray([0.0, 0.0]), PredictorMoments(jnp.asarray([30.0, 800.0]), jnp.asarray([4e3, 1.0]))
    )
    assert np.all(np.asarray(got.value) == -np.inf)
    fine = family.expected(jnp.asarray([1.0]), PredictorMoments(jnp.asarray([-800.0]), jnp.asarray([4.0])))
    assert np.all(np.isfinite(np.asarray(fine.value)))
