"""Every deterministic update against the explicit Fisher solve in its own parametrization; the step rule; the loop."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.linalg import DenseFactor
from natvi.natural.fisher import fisher_information
from natvi.optimize.deterministic import (
    FactorGradient,
    MomentGradient,
    Moments,
    euclidean_kappa,
    factor_gradient,
    natural_factor,
    natural_factor_corollary,
    natural_kappa,
    natural_lambda,
    natural_xi,
    positive_definite,
    stochastic_lambda,
)
from natvi.paper.largest_step import ascend, largest_step
from natvi.paper.loglinear import Loglinear
from natvi.x64 import float64
from strategies import quick_jit

TIGHT = {"rtol": 1e-8, "atol": 1e-10}
RHO = 0.01
LOWER = {d: np.tril_indices(d) for d in (1, 2, 3)}
TABLE_1 = {
    "euclidean kappa": euclidean_kappa,
    "kappa": natural_kappa,
    "xi": natural_xi,
    "lambda": natural_lambda,
}


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def model(d: int) -> Loglinear:
    rng = np.random.default_rng(d)
    X = np.column_stack([np.ones(20), rng.uniform(-1, 1, (20, d - 1))])
    return Loglinear(jnp.asarray(X), jnp.asarray(rng.poisson(2.0, 20).astype(float)))


def start(d: int) -> Moments:
    rng = np.random.default_rng(10 + d)
    root = 0.3 * np.eye(d) + 0.05 * np.tril(rng.standard_normal((d, d)))
    return Moments(jnp.asarray(0.2 * rng.standard_normal(d)), jnp.asarray(root @ root.T))


def gradient_at(target: Loglinear, q: Moments) -> MomentGradient:
    return MomentGradient(target.grad_mu(*q), target.grad_Sigma(*q))


def covariance_gaussian(q: Moments) -> CovarianceGaussian:
    return CovarianceGaussian(q.mu, DenseFactor(jnp.linalg.cholesky(q.Sigma)))


def precision_gaussian(q: Moments) -> PrecisionGaussian:
    return PrecisionGaussian(q.mu, DenseFactor(jnp.linalg.cholesky(jnp.linalg.inv(q.Sigma))))


def symmetric(entries: jax.Array, d: int) -> jax.Array:
    lower = triangular(entries, d)
    return lower + lower.T - jnp.diag(jnp.diagonal(lower))


def triangular(entries: jax.Array, d: int) -> jax.Array:
    return jnp.zeros((d, d), entries.dtype).at[LOWER[d]].set(entries)


# The covariance as a function of the free entries that stand beside the mean.
COVARIANCE_OF: dict[str, Callable[[jax.Array, int], jax.Array]] = {
    "kappa": symmetric,
    "xi": lambda entries, d: jnp.linalg.inv(symmetric(entries, d)),
    "C": lambda entries, d: triangular(entries, d) @ triangular(entries, d).T,
    "T": lambda entries, d: jnp.linalg.inv(triangular(entries, d) @ triangular(entries, d).T),
}


def fisher_step(q: Moments, kind: str, matrix: jax.Array, mixes_mean: bool = False) -> Moments:
    """Step along the solve with the explicit Fisher information, and return to mean and covariance.

    `mixes_mean`: the parameter is (Sigma^-1 mu, Sigma^-1), linear in lambda, or (T' mu, T), not the mean itself.
    """
    d = len(q.mu)
    covariance_of = partial(COVARIANCE_OF[kind], d=d)
    entries = matrix[LOWER[d]]
    point = jnp.concatenate([q.mu, entries])
    fisher = fisher_information(covariance_of, entries, d)
    euclidean = jax.grad(lambda p: model(d).elbo(p[:d], covariance_of(p[d:])))(point)
    if mixes_mean:
        # with point = unmixed(eta), eta's information and gradient are J'FJ and J'g
        eta = mixed(kind, q.mu, entries, d)
        J = jax.jacobian(lambda eta: unmixed(kind, d, eta))(eta)
        moved = unmixed(kind, d, eta + RHO * jnp.linalg.solve(J.T @ fisher @ J, J.T @ euclidean))
    else:
        moved = point + RHO * jnp.linalg.solve(fisher, euclidean)
    return Moments(moved[:d], covariance_of(moved[d:]))


def mixed(kind: str, mu: jax.Array, entries: jax.Array, d: int) -> jax.Array:
    """Return (Sigma^-1 mu, vech Sigma^-1), linear in the natural parameter, or (T' mu, vech T)."""
    first = symmetric(entries, d) @ mu if kind == "xi" else triangular(entries, d).T @ mu
    return jnp.concatenate([first, entries])


def unmixed(kind: str, d: int, eta: jax.Array) -> jax.Array:
    matrix = symmetric(eta[d:], d) if kind == "xi" else triangular(eta[d:], d).T
    return jnp.concatenate([jnp.linalg.solve(matrix, eta[:d]), eta[d:]])


def assert_same(ours: Moments, theirs: Moments) -> None:
    np.testing.assert_allclose(ours.mu, theirs.mu, **TIGHT)
    np.testing.assert_allclose(ours.Sigma, theirs.Sigma, **TIGHT)


def moments_of(gaussian: CovarianceGaussian | PrecisionGaussian) -> Moments:
    return Moments(gaussian.mean, jax.vmap(gaussian.covariance_product)(jnp.eye(len(gaussian.mean))))


@pytest.mark.parametrize("name", ["kappa", "xi", "lambda"])
def test_table_1_is_the_fisher_solve(name):
    @quick_jit
    def both(q):
        matrix = q.Sigma if name == "kappa" else jnp.linalg.inv(q.Sigma)
        ours = TABLE_1[name](q, gradient_at(model(3), q), RHO)
        return ours, fisher_step(q, "kappa" if name == "kappa" else "xi", matrix, name == "lambda")

    assert_same(*both(start(3)))


@pytest.mark.parametrize("name", ["Theorem 1, C", "Theorem 1, T", "Corollary 1, T"])
def test_factor_updates_are_the_fisher_solve(name):
    gaussian_of = covariance_gaussian if name.endswith("C") else precision_gaussian
    update = natural_factor_corollary if name.startswith("Corollary") else natural_factor

    @quick_jit
    def both(q):
        gaussian = gaussian_of(q)
        moved = update(gaussian, factor_gradient(gaussian, gradient_at(model(3), q)), RHO)
        return moments_of(moved), fisher_step(q, name[-1], gaussian.factor.matrix, name.startswith("Corollary"))

    assert_same(*both(start(3)))


@pytest.mark.parametrize("gaussian_of", [covariance_gaussian, precision_gaussian])
def test_factor_gradients_of_s2_against_automatic_differentiation(gaussian_of):
    target = model(3)

    @quick_jit
    def three(q):
        gaussian = gaussian_of(q)
        automatic = jax.grad(lambda g: target.elbo(*moments_of(g)))(gaussian)
        # the closed forms as printed, with sigma_0^2 = 100
        F, w = gaussian.factor.matrix, jnp.exp(target.X @ q.mu + 0.5 * jnp.sum(target.X @ q.Sigma * target.X, axis=1))
        gram, inverse = (target.X.T * w) @ target.X, jnp.linalg.inv(F).T
        if gaussian_of is covariance_gaussian:
            printed = inverse - F / 100 - gram @ F
        else:
            printed = (q.Sigma @ gram + q.Sigma / 100 - jnp.eye(3)) @ inverse
        return automatic, factor_gradient(gaussian, gradient_at(target, q)), printed

    automatic, ours, printed = three(start(3))
    np.testing.assert_allclose(ours.mean, automatic.mean, **TIGHT)
    np.testing.assert_allclose(ours.factor.matrix, np.tril(automatic.factor.matrix), **TIGHT)
    np.testing.assert_allclose(ours.factor.matrix, np.tril(printed), **TIGHT)


def test_the_stochastic_update_of_section_5():
    rng = np.random.default_rng(5)
    grad, hess, q = rng.standard_normal(3), rng.standard_normal((3, 3)), start(3)
    moved = stochastic_lambda(q, jnp.asarray(grad), jnp.asarray(hess + hess.T), RHO)
    expected = np.linalg.inv(np.linalg.inv(q.Sigma) - RHO * (hess + hess.T))
    assert_same(moved, Moments(q.mu + RHO * expected @ grad, expected))


def test_losing_positive_definiteness_is_seen():
    q = start(2)
    up = MomentGradient(jnp.zeros(2), 1e3 * jnp.eye(2))
    down = MomentGradient(jnp.zeros(2), jnp.diag(jnp.array([0.0, -1e3])))
    assert positive_definite(q)
    assert not positive_definite(natural_xi(q, up, 1.0))  # the precision turns negative
    assert not positive_definite(natural_lambda(q, up, 1.0))
    assert not positive_definite(natural_kappa(q, down, 1.0))  # the covariance does
    assert not positive_definite(euclidean_kappa(q, down, 1.0))


class Climb(NamedTuple):
    """What an ascent in mean and covariance needs, compiled."""

    gradient: Callable
    elbo: Callable


@cache
def climb() -> Climb:
    target = model(2)
    return Climb(quick_jit(partial(gradient_at, target)), quick_jit(lambda q: target.elbo(*q)))


@cache
def best_elbo() -> float:
    done = ascend(start(2), quick_jit(natural_lambda), *climb(), positive_definite, tolerance=1e-13)
    return done.elbos[-1]


@pytest.mark.parametrize("name", TABLE_1)
def test_the_bound_rises_to_the_same_optimum(name):
    done = ascend(start(2), quick_jit(TABLE_1[name]), *climb(), positive_definite)
    assert done.outcome == "converged"
    assert len(done.points) == len(done.elbos) == done.iterations + 1
    assert np.all(np.diff(done.elbos) > 0)
    assert abs(done.elbos[-1] - best_elbo()) < (1e-1 if name == "euclidean kappa" else 1e-5)


@pytest.mark.parametrize("update", [natural_factor, natural_factor_corollary])
def test_the_factor_updates_rise_too(update):
    target, q = model(2), precision_gaussian(start(2))
    bound = quick_jit(lambda q: target.bound(q))
    done = ascend(q, quick_jit(update), lambda q: FactorGradient(*bound(q)[1:]), lambda q: bound(q).elbo)
    assert done.outcome == "converged" and np.all(np.diff(done.elbos) > 0)
    assert abs(done.elbos[-1] - best_elbo()) < 1e-4


def test_largest_step_takes_the_first_that_works():
    def rule(bound):
        return largest_step(lambda rho: 1.0 - rho, bound, 0.0, lambda x: x > 0.95)

    assert rule(lambda x: 1.0 - x) == (0.99, 0.01, pytest.approx(0.01))  # only 0.01 and shorter stay above 0.95
    assert rule(lambda x: x - 1.0) is None  # the bound falls
    assert rule(lambda x: np.nan) is None


def test_how_an_ascent_may_end():
    def along(elbo, **options):
        return ascend(0.0, lambda x, g, rho: x + rho * g, lambda x: 1.0, elbo, **options)

    slow = along(lambda x: -np.exp(-x), max_steps=5)
    assert (slow.outcome, slow.iterations, slow.points[-1]) == ("max_steps", 5, 5.0)
    assert along(lambda x: -1.0 - abs(x)).outcome == "stalled"
    done = along(lambda x: -1.0 - np.exp(-x))
    change = np.abs(np.diff(done.elbos)) / np.abs(done.elbos[:-1])
    assert done.outcome == "converged" and change[-1] < 1e-7 <= change[-2]
