"""Stacks of small matrices against NumPy, matrix by matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.linalg import small_blocks
from natvi.x64 import float64
from strategies import quick_jit

cholesky = quick_jit(small_blocks.cholesky)
solve_lower = quick_jit(small_blocks.solve_lower)
solve_upper = quick_jit(small_blocks.solve_upper)
SIZES = [(1, 1), (2, 6), (3, 6)]
LARGE = small_blocks.LARGEST_UNROLLED + 1  # solved by a batched routine


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def random_stack(r: int, n: int, seed: int = 0) -> np.ndarray:
    """Draw n positive definite matrices `(n, r, r)` with eigenvalues in [1, 30]."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((n, r, r)))[0]
    return np.einsum("nij,nj,nkj->nik", Q, rng.uniform(1, 30, (n, r)), Q)


def group_last(stack: np.ndarray) -> jax.Array:
    return jnp.asarray(np.moveaxis(stack, 0, -1))


def group_first(stack: jax.Array) -> np.ndarray:
    return np.moveaxis(np.asarray(stack), -1, 0)


@pytest.mark.parametrize(("r", "n"), SIZES)
def test_cholesky(r, n):
    A = random_stack(r, n)
    L = group_first(cholesky(group_last(A)))
    np.testing.assert_allclose(L, np.linalg.cholesky(A), rtol=1e-13, atol=1e-14)
    assert np.all(L[:, *np.triu_indices(r, 1)] == 0.0)


@pytest.mark.parametrize(("r", "n"), [(2, 6), (3, 6)])
def test_cholesky_reads_the_lower_triangle_only(r, n):
    A = random_stack(r, n)
    spoilt = np.tril(A) + np.triu(np.full_like(A, np.nan), 1)
    clean, other = cholesky(group_last(A)), cholesky(group_last(spoilt))
    np.testing.assert_array_equal(clean, other)


@pytest.mark.parametrize("axes", [(), (2, 3)], ids=["vectors", "two more axes"])
@pytest.mark.parametrize(("r", "n"), [*SIZES, (LARGE, 2)])
def test_solves(r, n, axes):
    L = np.linalg.cholesky(random_stack(r, n))
    L *= np.random.default_rng(1).choice([-1.0, 1.0], (n, 1, r))
    b = np.random.default_rng(2).standard_normal((n, r, *axes))
    flat = b.reshape(n, r, -1)
    lower = group_first(solve_lower(group_last(L), group_last(b)))
    upper = group_first(solve_upper(group_last(L), group_last(b)))
    np.testing.assert_allclose(lower, np.linalg.solve(L, flat).reshape(b.shape), rtol=1e-12, atol=1e-13)
    expected = np.linalg.solve(L.swapaxes(1, 2), flat).reshape(b.shape)
    np.testing.assert_allclose(upper, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_a_matrix_that_is_not_positive_definite_gives_nan_in_its_place_only(r):
    A = random_stack(r, 6)
    A[2] -= 1.01 * np.linalg.eigvalsh(A[2])[0] * np.eye(r)
    A[4] = -A[4]
    finite = np.isfinite(group_first(cholesky(group_last(A)))).all(axis=(1, 2))
    np.testing.assert_array_equal(finite, [True, True, False, True, False, True])


def test_empty_stack():
    A = jnp.zeros((2, 2, 0))
    assert cholesky(A).shape == (2, 2, 0)
    assert solve_lower(A, jnp.zeros((2, 3, 0))).shape == (2, 3, 0)
    assert solve_upper(A, jnp.zeros((2, 0))).shape == (2, 0)
