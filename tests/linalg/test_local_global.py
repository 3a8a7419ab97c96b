"""The block-diagonal factor of reparametrized models against dense matrices."""

import jax.numpy as jnp
import numpy as np
import pytest

from natvi.gaussian import local_global_covariance
from natvi.linalg import ArrowFactor, ArrowVector, LocalGlobalFactor, LocalGlobalMatrix
from natvi.linalg.local_global import inverse_root
from natvi.natural import natural_direction
from natvi.typing import Factor
from natvi.x64 import float64
from strategies import arrow_vector, dense_factor, dense_vector

SIZES = [(1, 3, 4), (2, 4, 3), (3, 1, 2)]  # r, g, n; a stack of one size may equal the shared block's


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def random_factor(r: int, g: int, n: int, seed: int) -> LocalGlobalFactor:
    rng = np.random.default_rng(seed)
    local = np.tril(0.4 * rng.standard_normal((n, r, r))) + np.eye(r) * rng.choice([-1.3, 1.3], (n, 1, r))
    shared = np.tril(0.4 * rng.standard_normal((g, g))) + 1.5 * np.eye(g)
    return LocalGlobalFactor(jnp.asarray(np.moveaxis(local, 0, -1)), jnp.asarray(shared))


def dense(F: LocalGlobalFactor | LocalGlobalMatrix) -> np.ndarray:
    (r, _, n), g = F.local.shape, F.shared.shape[0]
    return dense_factor(ArrowFactor(F.local, jnp.zeros((g, r, n)), F.shared))


@pytest.mark.parametrize(("r", "g", "n"), SIZES)
def test_products_and_solves(r, g, n):
    F = random_factor(r, g, n, 0)
    assert isinstance(F, Factor)
    M, x = dense(F), np.random.default_rng(1).standard_normal(r * n + g)
    v = arrow_vector(x, r, n)
    for got, expected in [
        (F.product(v), M @ x),
        (F.transposed_product(v), M.T @ x),
        (F.solve(v), np.linalg.solve(M, x)),
        (F.solve_transposed(v), np.linalg.solve(M.T, x)),
        (F.diagonal(), np.diag(M)),
        (F.row_norms(), np.sqrt(np.diag(M @ M.T))),
    ]:
        np.testing.assert_allclose(dense_vector(got), expected, rtol=1e-11)
    np.testing.assert_allclose(F.log_determinant(), np.linalg.slogdet(M)[1], rtol=1e-12)
    np.testing.assert_allclose(np.diag(dense(F.with_diagonal(v))), x)
    assert F.num_entries == np.count_nonzero(dense(F.outer(v, v)))


@pytest.mark.parametrize(("r", "g", "n"), SIZES)
def test_matrices_on_the_pattern(r, g, n):
    F, G = random_factor(r, g, n, 0), random_factor(r, g, n, 1)
    M, on = dense(F), dense(jax_ones(F)) != 0
    half = np.tril(M.T @ dense(G)) * on
    half -= 0.5 * np.diag(np.diag(half))
    np.testing.assert_allclose(dense(F.half_transposed_product(G)), half, atol=1e-12)
    q = local_global_covariance(ArrowVector(jnp.zeros((r, n)), jnp.zeros(g)))
    q = type(q)(q.mean, F)
    np.testing.assert_allclose(dense(natural_direction(q, q.mean, G).factor), M @ half, atol=1e-11)
    hess = LocalGlobalMatrix(F.local + F.local.swapaxes(0, 1), F.shared + F.shared.T)
    np.testing.assert_allclose(dense(q.second_order(hess)), np.tril(dense(hess) @ M) * on, atol=1e-11)
    np.testing.assert_allclose(dense(q.entropy_gradient()), np.diag(1 / np.diag(M)), atol=1e-12)
    np.testing.assert_allclose(dense_vector(q.marginal_sds()), np.sqrt(np.diag(M @ M.T)), rtol=1e-12)


def jax_ones(F: LocalGlobalFactor) -> LocalGlobalFactor:
    (r, _, n), g = F.local.shape, F.shared.shape[0]
    ones = ArrowVector(jnp.ones((r, n)), jnp.ones(g))
    return F.outer(ones, ones)


@pytest.mark.parametrize(("r", "g", "n"), SIZES)
def test_precision_and_back(r, g, n):
    F = random_factor(r, g, n, 2)
    q = local_global_covariance(ArrowVector(jnp.zeros((r, n)), jnp.zeros(g)))
    q = type(q)(q.mean, F)
    S = q.precision()
    np.testing.assert_allclose(dense(S), np.linalg.inv(dense(F) @ dense(F).T), atol=1e-11)
    C = dense(q.with_precision(S).factor)
    np.testing.assert_allclose(C, np.tril(C), atol=0)
    np.testing.assert_allclose(C @ C.T, dense(F) @ dense(F).T, atol=1e-10)


def test_inverse_root_is_the_cholesky_factor_of_the_inverse():
    A = np.random.default_rng(3).standard_normal((5, 3, 3))
    A = A @ A.swapaxes(1, 2) + np.eye(3)
    L = np.moveaxis(np.asarray(inverse_root(jnp.asarray(np.moveaxis(A, 0, -1)))), -1, 0)
    np.testing.assert_allclose(L, np.linalg.cholesky(np.linalg.inv(A)), atol=1e-12)
