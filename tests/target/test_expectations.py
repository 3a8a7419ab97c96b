"""Whole models: expectations against draws and SciPy's densities, their derivatives against finite differences.

Bonnet's theorem: E grad is the derivative of the expectation in the mean. Price's: E hess is the second derivative
in the mean, and twice the derivative in the covariance.
"""

from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import natvi.target.term
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.target import Expected, SumOfTerms
from natvi.target.mixed.random_effects import omega_positions
from natvi.x64 import float64, to_host
from oracles import FIRST, OFFSETS
from strategies import (
    LIKELIHOODS,
    MixedCase,
    arrow_vector,
    dense_matrix,
    dense_moments,
    dense_vector,
    mixed_case,
    pattern_parts,
    quick_jit,
    random_arrow,
    random_gaussian,
)


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


GROUP_SIZES = (2, 1, 9, 3)  # the third group needs extra chunks
MODELS = [(name, r) for name in LIKELIHOODS for r in (1, 2)]
NUM_DRAWS = 20_000


@cache
def model(name: str, r: int) -> MixedCase:
    case = mixed_case(name, GROUP_SIZES, r, seed=11)
    assert len(case.layout.extra) > 0
    return case


@quick_jit
def expected_many(target: SumOfTerms, gaussians: ArrowPrecision) -> Expected:
    return jax.lax.map(target.expected, gaussians)


def stack(gaussians: list[ArrowPrecision]) -> ArrowPrecision:
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *to_host(gaussians))


def unstack(got: Expected) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values, dense gradients and dense Hessians."""
    got = to_host(got)
    each = [jax.tree.map(lambda a, i=i: a[i], got) for i in range(len(got.value))]
    return (
        got.value,
        np.stack([dense_vector(one.grad) for one in each]),
        np.stack([dense_matrix(one.hess) for one in each]),
    )


class Probe(NamedTuple):
    """Expectations at a Gaussian and differences around it: dense, on the host."""

    centre: ArrowPrecision
    value: float
    grad: np.ndarray
    hess: np.ndarray
    grad_by_differences: np.ndarray
    hess_by_differences: np.ndarray
    slope_in_covariance: float  # along dV
    dV: np.ndarray


@cache
def probe(name: str, r: int) -> Probe:
    case = model(name, r)
    n, d = case.n, r * case.n + case.g
    centre = to_host(random_gaussian(r, case.g, n, seed=12, scale=0.8))
    mean, Sigma = dense_moments(centre)
    moved = [to_host(arrow_vector(mean + h * e, r, n)) for e in np.eye(d) for h in OFFSETS]
    # Sigma(h) = (P + h D)^-1 with D on the pattern, so dV = -Sigma D Sigma; h D is small beside P
    P, D = np.linalg.inv(Sigma), 0.3 * dense_matrix(random_arrow(r, case.g, n, seed=13, condition=2.0))
    widened = [with_precision(centre, P + h * D, r, n) for h in OFFSETS]
    everything = [*(centre._replace(mean=m) for m in moved), *widened]
    values, grads, hesses = unstack(expected_many(case.target, stack(everything)))
    values, grads = values.reshape(d + 1, 7), grads.reshape(d + 1, 7, d)
    return Probe(
        centre,
        values[-1, 3],
        grads[-1, 3],
        hesses[-4],
        values[:-1] @ FIRST,
        np.einsum("k,dkj->dj", FIRST, grads[:-1]),
        float(values[-1] @ FIRST),
        -Sigma @ D @ Sigma,
    )


def with_precision(gaussian: ArrowPrecision, precision: np.ndarray, r: int, n: int) -> ArrowPrecision:
    T = ArrowFactor(*pattern_parts(np.linalg.cholesky(precision), r, n))
    return gaussian._replace(factor=T, inverse_shared=np.linalg.inv(T.shared))


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_bonnet(name, r):
    got = probe(name, r)
    np.testing.assert_allclose(got.grad, got.grad_by_differences, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_price_in_the_mean(name, r):
    """The second derivative is dense in the oracle: E hess agrees with it on the pattern and off it."""
    got = probe(name, r)
    np.testing.assert_allclose(got.hess, got.hess_by_differences, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_price_in_the_covariance(name, r):
    got = probe(name, r)
    np.testing.assert_allclose(got.slope_in_covariance, 0.5 * np.sum(got.hess * got.dV), rtol=1e-7)


@quick_jit
def value_many(target: SumOfTerms, theta: ArrowVector) -> jax.Array:
    return jax.vmap(target.value)(theta)


@cache
def drawn(name: str, r: int) -> tuple[ArrowVector, np.ndarray]:
    """Draw from the Gaussian of `probe` and evaluate the log-density at the draws."""
    case = model(name, r)
    mean, Sigma = dense_moments(probe(name, r).centre)
    z = np.random.default_rng(0).standard_normal((NUM_DRAWS, len(mean)))
    flat = mean + z @ np.linalg.cholesky(Sigma).T
    local = flat[:, : r * case.n].reshape(NUM_DRAWS, case.n, r).swapaxes(1, 2)
    theta = ArrowVector(local, flat[:, r * case.n :])
    return theta, np.asarray(value_many(case.target, theta))


def log_density(name: str, case: MixedCase, theta: ArrowVector) -> float:
    """State the model with SciPy's distributions."""
    _, effects = case.target.grouped
    (prior,) = case.target.shared
    p, place = case.data.X.shape[1], case.layout.place_of_group[case.data.group]
    eta = case.data.offset + case.data.X @ theta.shared[:p]
    eta += np.sum(case.data.Z * theta.local[:, place].T, axis=1)
    rows = LIKELIHOODS[name].log_density(case.y, eta, theta.shared[p])
    W = np.zeros((case.r, case.r))
    for (row, column), position in omega_positions(case.r).items():
        entry = theta.shared[effects.start + position]
        W[row, column] = np.exp(entry) if row == column else entry
    local = scipy.stats.multivariate_normal.logpdf(theta.local.T, np.zeros(case.r), np.linalg.inv(W @ W.T))
    shared = scipy.stats.norm.logpdf(theta.shared, prior.mean, prior.sd)
    return float(np.sum(rows) + np.sum(local) + np.sum(shared))


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_value_is_the_density_of_scipy(name, r):
    theta, values = drawn(name, r)
    for i in range(5):
        one = ArrowVector(theta.local[i], theta.shared[i])
        np.testing.assert_allclose(values[i], log_density(name, model(name, r), one), rtol=1e-11)


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_expectation_agrees_with_sampling(name, r):
    _, values = drawn(name, r)
    z = (values.mean() - probe(name, r).value) / (values.std() / np.sqrt(NUM_DRAWS))
    assert abs(z) < 4


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_padding_does_not_matter(name, r):
    """Cells without a row hold anything, even what overflows."""
    case, centre = model(name, r), probe(name, r).centre
    (likelihood, _) = case.target.grouped
    empty = ~np.asarray(likelihood.design.filled)
    assert empty.any()
    spoilt = eqx.tree_at(
        lambda target: (target.grouped[0].y, target.grouped[0].design.offset),
        case.target,
        (jnp.where(empty, jnp.nan, likelihood.y), jnp.where(empty, 1e4, likelihood.design.offset)),
    )
    same = stack([centre] * (7 * (r * case.n + case.g + 1)))
    clean, other = (to_host(expected_many(target, same)) for target in (case.target, spoilt))
    jax.tree.map(np.testing.assert_array_equal, clean, other)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_hessian_at_a_point(name):
    """All mass at one point: E hess is the Hessian of `value`."""
    case = model(name, 1)
    at = dense_vector(probe(name, 1).centre.mean)

    def value(x: jax.Array) -> jax.Array:
        return case.target.value(ArrowVector(x[: case.n][None], x[case.n :]))

    got = quick_jit(lambda target, theta: target.hessian(theta))(case.target, arrow_vector(at, 1, case.n))
    np.testing.assert_allclose(dense_matrix(got), quick_jit(jax.hessian(value))(jnp.asarray(at)), rtol=1e-8, atol=1e-8)


# --- blocks of groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "r"), [("poisson", 1), ("bernoulli", 1), ("gaussian", 2)])
def test_blocks_of_groups_give_the_same(name, r, monkeypatch):
    sizes = (2, 3, 1, 2, 11, 3, 2, 1, 3, 2, 2, 14, 3, 1, 2, 3, 2, 2, 1, 9, 3, 2)
    case = mixed_case(name, sizes, r, seed=14)
    # four blocks of four groups, then groups of one chunk, then groups of several
    assert 16 < case.layout.num_simple < len(sizes)
    gaussian = random_gaussian(r, case.g, len(sizes), seed=15, scale=0.8)
    # for r = 2 the likelihood alone, because the prior takes seconds to compile
    target = case.target if r == 1 else SumOfTerms(case.target.grouped[:1], case.target.shared)
    whole = to_host(quick_jit(lambda q: target.expected(q))(gaussian))
    in_blocks = []
    unspied = natvi.target.term._room_in_front
    monkeypatch.setattr(natvi.target.term, "_room_in_front", lambda *args: in_blocks.append(args[1]) or unspied(*args))
    monkeypatch.setattr(natvi.target.term, "BLOCK_GROUPS", 4)
    blocked = to_host(quick_jit(lambda q: target.expected(q))(gaussian))
    assert in_blocks == [16]
    # the step of the logit's quadrature depends on the largest variance of a block: accuracy, not rounding
    close = {"rtol": 1e-9, "atol": 1e-8} if name == "bernoulli" else {"rtol": 1e-12, "atol": 1e-12}
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(blocked), strict=True):
        np.testing.assert_allclose(one, other, **close)
