"""Uncorrelated random effects: W is diagonal, and omega holds its logarithms alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from natvi.linalg import ArrowVector
from natvi.target import RandomEffectsPrior
from natvi.target.mixed.random_effects import expected_log_prior
from natvi.target.point_mass import PointMass
from natvi.x64 import float64
from oracles import LOG_2PI
from strategies import dense_matrix, dense_vector, hermite, quick_jit, random_vector

START = 2


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def brute_prior(r: int, m: np.ndarray, V: np.ndarray) -> float:
    """Integrate log p = sum_k {-log(2 pi)/2 + w_k - e^{2 w_k} theta_k^2 / 2}, a function of pairs (w_k, theta_k)."""
    z, weight = hermite((60, 3))
    total = 0.0
    for k in range(r):
        pair = [r + k, k]
        omega, theta = m[pair][:, None] + np.linalg.cholesky(V[np.ix_(pair, pair)]) @ z
        total += weight @ (-0.5 * LOG_2PI + omega - 0.5 * np.exp(2 * omega) * theta**2)
    return float(total)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_expectation_against_brute_force(r):
    rng = np.random.default_rng(r)
    moments = []
    for _ in range(8):
        sds = np.concatenate([10 ** rng.uniform(-3, 1, r), rng.uniform(0.01, 2.0, r)])
        V = np.corrcoef(rng.standard_normal((2 * r, 2 * r + 2))) * np.outer(sds, sds)
        moments.append((rng.uniform(-3, 3, 2 * r), V))
    m, V = (jnp.asarray(np.stack(parts, axis=-1)) for parts in zip(*moments, strict=True))
    got = expected_log_prior(r, m, V, correlated=False)
    np.testing.assert_allclose(got, [brute_prior(r, *pair) for pair in moments], rtol=1e-8)


def test_omega_has_one_entry_for_each_effect():
    assert RandomEffectsPrior(3, START, correlated=False).stop == START + 3
    assert RandomEffectsPrior(3, START).stop == START + 6


def test_density_and_derivatives():
    r, n = 2, 4
    prior = RandomEffectsPrior(r, START, correlated=False)
    theta = random_vector(r, START + r, n, seed=1)
    sds = np.exp(-np.asarray(theta.shared)[START:])
    exact = scipy.stats.norm.logpdf(np.asarray(theta.local), 0.0, sds[:, None]).sum()
    np.testing.assert_allclose(prior.value(theta), exact, rtol=1e-12)
    np.testing.assert_allclose(prior.precision_factor(theta.shared), np.diag(1 / sds), rtol=1e-12)

    def value(x: jax.Array) -> jax.Array:
        return prior.value(ArrowVector(x[: r * n].reshape(n, r).T, x[r * n :]))

    at = jnp.asarray(dense_vector(theta))
    grad = np.asarray(jax.grad(value)(at))
    each = prior.group_gradients(theta)
    np.testing.assert_allclose(np.asarray(each.local).T.ravel(), grad[: r * n], rtol=1e-10)
    np.testing.assert_allclose(np.sum(each.shared, axis=1), grad[r * n + START :], rtol=1e-10)
    got = prior.expected(PointMass(theta))
    np.testing.assert_allclose(got.value, exact, rtol=1e-12)
    keep = np.r_[: r * n, r * n + START : r * n + START + r]  # omega alone among the shared coordinates
    np.testing.assert_allclose(dense_vector(got.grad), grad[keep], rtol=1e-10)
    hess = quick_jit(jax.hessian(value))(at)
    np.testing.assert_allclose(dense_matrix(got.hess), np.asarray(hess)[np.ix_(keep, keep)], rtol=1e-9, atol=1e-9)
