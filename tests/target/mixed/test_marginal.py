"""The random effects integrated out: against closed forms, plain quadrature and differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from natvi.families.table import find_family
from natvi.target import LikelihoodRows, NormalPrior, RandomEffectsPrior, SumOfTerms
from natvi.target.mixed.marginal import RowLikelihood, can_integrate, group_modes, marginal_log_density
from natvi.x64 import float64
from oracles import FIRST, OFFSETS
from strategies import LIKELIHOODS, MixedCase, mixed_case, panels, quick_jit

SIZES = (2, 1, 9, 3)
CONSTANT = -3.25


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


@quick_jit
def marginal(target: SumOfTerms, shared: jax.Array, near: jax.Array) -> jax.Array:
    return marginal_log_density(target, shared, near)


@quick_jit
def marginal_and_slope(target: SumOfTerms, shared: jax.Array, near: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(lambda x: marginal_log_density(target, x, near))(shared)


def weighted(case: MixedCase, weight: np.ndarray, family=None, y: np.ndarray | None = None) -> SumOfTerms:
    """Give the rows of a case weights and a constant, and perhaps another family and response."""
    term = case.target.grouped[0]
    assert isinstance(term, LikelihoodRows)
    rows = LikelihoodRows(
        term.design,
        term.y if y is None else jnp.asarray(case.layout.place(y)),
        term.family if family is None else family,
        weight=jnp.asarray(case.layout.place(weight, fill=7.0)),
        constant=CONSTANT,
    )
    return SumOfTerms((rows, *case.target.grouped[1:]), case.target.shared)


def log_prior(target: SumOfTerms, shared: np.ndarray) -> float:
    (prior,) = target.shared
    assert isinstance(prior, NormalPrior)
    return float(scipy.stats.norm.logpdf(shared, prior.mean, prior.sd).sum())


def gaussian_marginal(case: MixedCase, weight: np.ndarray, shared: np.ndarray, W: np.ndarray) -> float:
    """A normal row of weight w is a normal row of variance sigma^2 / w times a constant; so y is normal."""
    data, p = case.data, case.data.X.shape[1]
    sigma = np.exp(shared[p])
    same = data.group[:, None] == data.group[None]
    covariance = np.where(same, data.Z @ np.linalg.inv(W @ W.T) @ data.Z.T, 0.0) + np.diag(sigma**2 / weight)
    mean = data.offset + data.X @ shared[:p]
    rows = -0.5 * weight * np.log(2 * np.pi * sigma**2) + 0.5 * np.log(2 * np.pi * sigma**2 / weight)
    return float(scipy.stats.multivariate_normal.logpdf(case.y, mean, covariance) + rows.sum())


@pytest.mark.parametrize(("r", "correlated"), [(1, True), (2, True), (2, False), (3, False), (4, True)])
def test_gaussian_rows_with_weights_are_exact(r, correlated):
    case = mixed_case("gaussian", SIZES, r, seed=3, correlated=correlated)
    rng = np.random.default_rng(4)
    weight = rng.uniform(0.5, 3.0, len(case.y))
    target = weighted(case, weight)
    assert can_integrate(target)
    shared = 0.5 * rng.standard_normal(case.g)
    omega = iter(shared[case.data.X.shape[1] + 1 :])
    W = np.zeros((r, r))
    for column in range(r):
        for row in range(column, r) if correlated else [column]:
            W[row, column] = np.exp(next(omega)) if row == column else next(omega)
    exact = gaussian_marginal(case, weight, shared, W) + log_prior(target, shared) + CONSTANT
    got = marginal(target, jnp.asarray(shared), jnp.zeros((r, case.n)))
    np.testing.assert_allclose(got, exact, rtol=1e-10)


def test_one_node_is_as_good_as_many_for_gaussian_rows():
    case = mixed_case("gaussian", SIZES, 2, seed=3)
    shared, near = jnp.asarray(0.5 * np.random.default_rng(4).standard_normal(case.g)), jnp.zeros((2, case.n))
    value, slope = marginal_and_slope(case.target, shared, near)
    many = quick_jit(jax.value_and_grad(lambda x: marginal_log_density(case.target, x, near, nodes=9)))(shared)
    np.testing.assert_allclose(value, many[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(slope, many[1], rtol=0, atol=1e-8)


# independent statements of log p(y | eta, dispersion)
DENSITIES = {
    "poisson": lambda y, eta, a: scipy.stats.poisson.logpmf(y, np.exp(eta)),
    "negative_binomial": lambda y, eta, a: scipy.stats.nbinom.logpmf(y, np.exp(a), 1 / (1 + np.exp(eta - a))),
    "gamma": lambda y, eta, a: scipy.stats.gamma.logpdf(y, np.exp(a), scale=np.exp(eta - a)),
    "probit": lambda y, eta, a: y * scipy.special.log_ndtr(eta) + (1 - y) * scipy.special.log_ndtr(-eta),
    "cloglog": lambda y, eta, a: y * np.log(-np.expm1(-np.exp(eta))) - (1 - y) * np.exp(eta),
}


def brute_marginal(name: str, case: MixedCase, y: np.ndarray, weight: np.ndarray, shared: np.ndarray) -> float:
    """Integrate each group's effect over many narrow panels."""
    data, p = case.data, case.data.X.shape[1]
    sd = np.exp(-shared[-1])
    theta, w = panels(-12 * sd, 12 * sd, 60)
    eta = data.offset[:, None] + data.X @ shared[:p, None] + data.Z * theta
    rows = weight[:, None] * DENSITIES[name](y[:, None], eta, shared[p])
    total = 0.0
    for group in range(case.n):
        density = rows[data.group == group].sum(axis=0) + scipy.stats.norm.logpdf(theta, 0.0, sd)
        total += scipy.special.logsumexp(density, b=w)
    return total


@pytest.mark.parametrize("name", DENSITIES)
def test_other_families_against_plain_quadrature(name):
    binary = name in ("probit", "cloglog")
    family = find_family("binomial", name) if binary else find_family(name)
    case = mixed_case("gaussian" if family.has_dispersion else "poisson", SIZES, 1, seed=5)
    rng = np.random.default_rng(6)
    y = rng.integers(0, 4, len(case.y)) / (3.0 if binary else 1.0)  # proportions of three trials
    y = y + 0.5 if name == "gamma" else y
    weight = rng.uniform(0.5, 3.0, len(y))
    target = weighted(case, weight, family, y)
    shared = 0.4 * rng.standard_normal(case.g)
    exact = brute_marginal(name, case, y, weight, shared) + log_prior(target, shared) + CONSTANT
    # the slope in theta_g, for which mode and curvature count as constants
    value, slope = marginal_and_slope(target, jnp.asarray(shared), jnp.zeros((1, case.n)))
    np.testing.assert_allclose(value, exact, rtol=1e-6)
    moved = shared + OFFSETS[:, None, None] * np.eye(case.g)
    values = [[brute_marginal(name, case, y, weight, x) + log_prior(target, x) for x in part] for part in moved]
    np.testing.assert_allclose(slope, FIRST @ np.array(values), rtol=1e-3, atol=0.01)


def brute_pair(name: str, case: MixedCase, beta: np.ndarray, covariance: np.ndarray) -> float:
    """Integrate each group's two effects over a product of narrow panels of independent standard normals."""
    z, w = panels(-9.0, 9.0, 14)
    pairs = np.stack([axis.ravel() for axis in np.meshgrid(z, z, indexing="ij")])
    log_w = np.add.outer(np.log(w), np.log(w)).ravel() + scipy.stats.norm.logpdf(pairs).sum(axis=0)
    theta = np.linalg.cholesky(covariance) @ pairs
    total = 0.0
    for group in range(case.n):
        own = case.data.group == group
        eta = (case.data.offset + case.data.X @ beta)[own, None] + case.data.Z[own] @ theta
        rows = LIKELIHOODS[name].log_density(case.y[own, None], eta, 0.0)
        total += scipy.special.logsumexp(rows.sum(axis=0) + log_w)
    return total


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
@pytest.mark.parametrize("sizes", [(6,), (1,)])
def test_two_correlated_effects_against_panels(name, sizes):
    """The default number of nodes is good for about four decimals; a single count of zero, all edge, for less."""
    close = 4e-4 if (name, sizes) == ("poisson", (1,)) else 1e-4
    case = mixed_case(name, sizes, 2, seed=8)
    beta = np.array([0.4, -0.6])
    for s1, s2, rho in ((0.5, 0.5, 0.3), (1.0, 2.0, -0.5), (2.0, 1.0, 0.8)):
        covariance = np.array([[s1**2, rho * s1 * s2], [rho * s1 * s2, s2**2]])
        W = np.linalg.cholesky(np.linalg.inv(covariance))
        shared = np.array([*beta, np.log(W[0, 0]), W[1, 0], np.log(W[1, 1])])
        got = marginal(case.target, jnp.asarray(shared), jnp.zeros((2, 1))) - log_prior(case.target, shared)
        assert got == pytest.approx(brute_pair(name, case, beta, covariance), abs=close)


def test_many_effects_cannot_be_integrated():
    case = mixed_case("poisson", SIZES, 1, seed=7)
    wide = eqx.tree_at(lambda t: t.grouped, case.target, (case.target.grouped[0], RandomEffectsPrior(4, 2)))
    assert can_integrate(case.target) and not can_integrate(wide)


def test_one_row_that_outweighs_all_others_leaves_a_mode():
    """Where e^eta is 1e17 rounding makes the Hessian of two effects indefinite: the mode is found all the same."""
    case = mixed_case("poisson", (1,) * 24, 2, seed=3)
    likelihood, effects = case.target.grouped
    heavy = eqx.tree_at(lambda term: term.design.offset, likelihood, jnp.full_like(likelihood.design.offset, 41.0))
    shared = jnp.zeros(case.g)
    W = effects.precision_factor(shared)
    mode, root = group_modes(RowLikelihood(heavy, shared), W @ W.T, jnp.zeros((2, 24)))
    assert np.all(np.isfinite(mode)) and np.all(np.isfinite(root))
    # log p = y eta - e^eta - |theta|^2 / 2 with z at hand: at the mode y - e^eta = theta_k / z_k
    eta = RowLikelihood(heavy, shared).predictor(mode)
    slope = np.asarray(likelihood.y - jnp.exp(eta))[0]
    np.testing.assert_allclose(slope * np.asarray(likelihood.design.Z)[:, 0], mode, atol=1e-3)
