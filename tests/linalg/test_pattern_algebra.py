"""The algebra of symmetric matrices that every factor brings along, on every structure, against dense matrices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structures as st
from natvi.gaussian import CovarianceGaussian
from natvi.linalg import ArrowVector
from natvi.typing import Factor
from natvi.x64 import float64
from strategies import quick_jit


@pytest.fixture(params=st.STRUCTURES)
def q(request):
    with float64():
        yield st.random_gaussian(request.param, 3, 1)


def on_pattern(factor: Any) -> np.ndarray:
    """Return ones where symmetric matrices of the pattern may differ from zero."""
    d = len(st.flat(factor.diagonal()))
    return (st.unsymmetric(factor, st.symmetric(factor, np.ones((d, d)))) != 0).astype(float)


def test_every_factor_keeps_the_protocol(q):
    assert isinstance(q.factor, Factor)


def test_gram_and_add_diagonal(q):
    """sum_i a_i a_i' + diag(v); of groups the rows touch their own group and the shared coordinates."""
    F, rng = q.factor, np.random.default_rng(2)
    amounts = st.random_vector(q.mean, rng)
    if isinstance(q.mean, ArrowVector):
        (r, n), g = q.mean.local.shape, len(q.mean.shared)
        rows = ArrowVector(jnp.asarray(rng.normal(size=(r, n))), jnp.asarray(rng.normal(size=(g, n))))
        J = np.zeros((n, r * n + g))
        for i in range(n):
            J[i, r * i : r * i + r], J[i, r * n :] = rows.local[:, i], rows.shared[:, i]
    else:
        rows = J = jnp.asarray(rng.normal(size=(5, len(q.mean))))
        weights = rng.uniform(size=5)
        weighted = st.unsymmetric(F, F.gram(rows, jnp.asarray(weights)))
        np.testing.assert_allclose(weighted, np.asarray(J.T * weights @ J) * on_pattern(F), atol=1e-12)
    found = st.unsymmetric(F, F.add_diagonal(F.gram(rows), amounts))
    np.testing.assert_allclose(found, np.asarray(J.T @ J) * on_pattern(F) + np.diag(st.flat(amounts)), atol=1e-12)


def test_precision_and_back(q):
    """A Gaussian's precision, whether its factor is C or T, and the factor from it."""
    covariance = st.covariance(q)
    S = quick_jit(lambda q: q.precision())(q)
    np.testing.assert_allclose(st.unsymmetric(q.factor, S), np.linalg.inv(covariance), atol=1e-10)
    again = quick_jit(lambda q, S: q.with_precision(S))(q, S)
    assert type(again) is type(q) and jax.tree.structure(again) == jax.tree.structure(q)
    np.testing.assert_allclose(st.covariance(again), covariance, atol=1e-10)
    outside = st.dense(again.factor).copy()
    outside[st.pattern(q.factor)] = 0.0
    assert np.all(outside == 0.0) and np.all(st.flat(again.factor.diagonal()) > 0)


@pytest.mark.parametrize("name", ["pattern covariance", "pattern precision"])
def test_a_precision_without_a_factor_on_the_pattern_gets_the_closest_one(name):
    """The smallest KL(N(0, S^-1) || q), whose slope in the factor's entries is zero."""
    with float64():
        q = st.random_gaussian(name, 3, 3)
        d = len(q.mean)
        A = np.random.default_rng(4).normal(size=(d, d))
        S = A @ A.T + np.eye(d)
        at = st.pattern(q.factor)

        def divergence(entries):
            F = jnp.zeros((d, d)).at[at].set(entries)
            precision = jnp.linalg.inv(F @ F.T) if isinstance(q, CovarianceGaussian) else F @ F.T
            return 0.5 * (jnp.trace(precision @ np.linalg.inv(S)) - jnp.linalg.slogdet(precision)[1])

        found = q.with_precision(jnp.asarray(S)).factor
        slope = jax.grad(divergence)(jnp.asarray(st.dense(found)[at]))
        np.testing.assert_allclose(slope, 0.0, atol=1e-10)


def test_half_outer_is_that_of_the_dense_matrix(q):
    rng = np.random.default_rng(5)
    u, z = st.random_vector(q.mean, rng), st.random_vector(q.mean, rng)
    full = np.tril(np.outer(st.flat(u), st.flat(z)))
    full -= 0.5 * np.diag(np.diag(full))
    mask = np.zeros_like(full)
    mask[st.pattern(q.factor)] = 1.0
    expected = (st.dense(q.factor) @ (full * mask)) * mask
    np.testing.assert_allclose(st.dense(q.factor.multiply_half_outer(u, z)), expected, atol=1e-12)
