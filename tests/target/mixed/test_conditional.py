"""Exact conditional draws of the random effects: moments and distribution against brute-force quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from natvi.families.table import find_family
from natvi.target import LikelihoodRows, RandomEffectsPrior, SumOfTerms
from natvi.target.mixed.conditional import can_draw, draw_conditional
from natvi.target.mixed.log_concave import draw_log_concave
from natvi.x64 import float64
from strategies import LIKELIHOODS, MixedCase, mixed_case, panels, quick_jit

SIZES = (2, 1, 7, 3)
NUM_DRAWS = 3000

draw = draw_conditional


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def grid_densities(name: str, case: MixedCase, shared: np.ndarray, sd: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a fine grid `(r, k)` and the normalised weight of each point for every group `(n, k)`."""
    data, (p, r) = case.data, (case.data.X.shape[1], case.r)
    x, w = panels(-6 * sd, 6 * sd, 80 if r == 1 else 24)
    axes = np.meshgrid(*[x] * r, indexing="ij")
    theta = np.stack([axis.ravel() for axis in axes])
    log_w = sum(axis.ravel() for axis in np.meshgrid(*[np.log(w)] * r, indexing="ij"))
    omega = shared[-r * (r + 1) // 2 :]
    W = np.diag(np.exp(omega[[0, 2][:r]] if r == 2 else omega))
    if r == 2:
        W[1, 0] = omega[1]
    log_prior = -0.5 * np.sum((W.T @ theta) ** 2, axis=0)
    eta = (data.offset + data.X @ shared[:p])[:, None] + data.Z @ theta
    rows = LIKELIHOODS[name].log_density(case.y[:, None], eta, shared[p])  # type: ignore
    weights = []
    for group in range(case.n):
        log_density = rows[data.group == group].sum(axis=0) + log_prior + log_w
        density = np.exp(log_density - log_density.max())
        weights.append(density / density.sum())
    return theta, np.array(weights)


@pytest.mark.parametrize(
    ("name", "r"),
    [("bernoulli", 1), ("poisson", 1), ("gaussian", 1), ("bernoulli", 2), ("gaussian", 2)],
)
def test_draws_have_the_moments_of_the_conditional(name: str, r: int) -> None:
    case = mixed_case(name, SIZES, r, seed=11)
    rng = np.random.default_rng(1)
    shared = 0.3 * rng.standard_normal(case.g)
    shared[-r * (r + 1) // 2 :] = {1: [-0.7], 2: [0.0, 0.3, -0.1]}[r]
    many = jnp.broadcast_to(jnp.asarray(shared), (NUM_DRAWS, case.g))
    draws = np.asarray(draw(case.target, many, jnp.zeros((r, case.n)), jax.random.key(0)))
    assert draws.shape == (NUM_DRAWS, r, case.n) and draws.dtype == np.float64
    theta, weights = grid_densities(name, case, shared, sd=3.0 - r)
    for group in range(case.n):
        got = draws[:, :, case.layout.place_of_group[group]]
        mean = theta @ weights[group]
        covariance = (theta - mean[:, None]) * weights[group] @ (theta - mean[:, None]).T
        sd = np.sqrt(np.diag(covariance))
        np.testing.assert_array_less(np.abs(got.mean(0) - mean) / sd, 4 / np.sqrt(NUM_DRAWS))
        assert np.allclose(np.cov(got.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.1)
        for k in range(r):  # the whole distribution, not its moments alone
            values, which = np.unique(theta[k], return_inverse=True)
            mass = np.bincount(which, weights[group])
            uniform = np.interp(got[:, k], values, np.cumsum(mass) - mass / 2)
            assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("name", ["negative_binomial"])
def test_other_families_draw_without_trouble_from_a_bad_guess(name: str) -> None:
    """Draws agree with those from a good guess, in distribution; with weights on the rows."""
    family = find_family("binomial", name) if name in ("cloglog", "probit") else find_family(name)
    case = mixed_case("gaussian" if family.has_dispersion else "poisson", SIZES, 1, seed=5)
    rng = np.random.default_rng(2)
    y = rng.integers(0, 4, len(case.y)) / (3.0 if name in ("cloglog", "probit") else 1.0) + (name == "gamma")
    term = case.target.grouped[0]
    assert isinstance(term, LikelihoodRows)
    weight = jnp.asarray(case.layout.place(rng.uniform(0.5, 3.0, len(y)), fill=7.0))
    rows = LikelihoodRows(term.design, jnp.asarray(case.layout.place(y)), family, weight=weight)
    target = SumOfTerms((rows, case.target.grouped[1]), case.target.shared)
    many = jnp.broadcast_to(jnp.asarray(0.3 * rng.standard_normal(case.g)), (400, case.g))
    good = np.asarray(draw(target, many, jnp.zeros((1, case.n)), jax.random.key(1)))
    bad = np.asarray(draw(target, many, jnp.full((1, case.n), 30.0), jax.random.key(2)))
    assert np.all(np.isfinite(bad))
    for group in range(case.n):
        assert scipy.stats.ks_2samp(good[:, 0, group], bad[:, 0, group]).pvalue > 1e-4  # type: ignore


def test_tangents_of_lopsided_and_displaced_densities() -> None:
    """Exact whatever the shape: exponential-like sides, a mode away from zero, another width."""
    logs = {
        "gumbel": (lambda x: -x - jnp.exp(-x), scipy.stats.gumbel_r()),
        "moved": (lambda x: -0.5 * (x - 0.8) ** 2, scipy.stats.norm(0.8)),
        "narrow": (lambda x: -0.5 * (x / 0.05) ** 2, scipy.stats.norm(0, 0.05)),
        "wide": (lambda x: -0.5 * (x / 6) ** 2, scipy.stats.norm(0, 6)),
        "logistic": (lambda x: -x - 2 * jax.nn.softplus(-x), scipy.stats.logistic()),
    }
    n = 3000
    for k, (log_density, law) in enumerate(logs.values()):
        draws = np.asarray(quick_jit(lambda key, f=log_density: draw_log_concave(key, f, n))(jax.random.key(k)))
        assert scipy.stats.kstest(draws, law.cdf).pvalue > 1e-3


def test_same_key_same_draws_and_three_effects_are_refused() -> None:
    case = mixed_case("poisson", SIZES, 1, seed=7)
    shared, near = jnp.zeros((5, case.g)), jnp.zeros((1, case.n))
    first, again = (np.asarray(draw(case.target, shared, near, jax.random.key(3))) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    many = mixed_case("bernoulli", SIZES, 3, seed=7)
    assert not can_draw(many.target) and can_draw(mixed_case("gaussian", SIZES, 3, seed=7).target)
    assert isinstance(many.target.grouped[1], RandomEffectsPrior)
    with pytest.raises(ValueError, match="at most 2"):
        draw_conditional(many.target, jnp.zeros((2, many.g)), jnp.zeros((3, many.n)), jax.random.key(0))
