"""The arrow against dense NumPy: every product, solve and factor, for all small sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natvi.linalg import ArrowFactor, ArrowMatrix, ArrowVector
from natvi.precision import float64
from strategies import (
    arrow_vector,
    dense_factor,
    dense_matrix,
    dense_vector,
    pattern_parts,
    quick_jit,
    random_arrow,
    random_factor,
    random_vector,
)

# few sizes, because each is compiled once; no groups at all and a single shared coordinate included
sizes = st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 4]), st.sampled_from([0, 1, 5]))
seeds = st.integers(0, 1000)
TIGHT = {"rtol": 1e-11, "atol": 1e-12}


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


@quick_jit
def matrix_methods(H: ArrowMatrix, x: ArrowVector) -> tuple:
    return H.matvec(x), H.cholesky()


@quick_jit
def factor_methods(T: ArrowFactor, x: ArrowVector) -> tuple:
    return (
        T.solve(x),
        T.solve_transposed(x),
        T.transposed_product(x),
        T.multiply_transposed(),
        T.log_determinant(),
    )


@given(sizes, seeds)
def test_matrix_methods(size, seed):
    H, x = random_arrow(*size, seed), random_vector(*size, seed + 1)
    dense = dense_matrix(H)
    product, T = matrix_methods(H, x)
    np.testing.assert_allclose(dense_vector(product), dense @ dense_vector(x), **TIGHT)
    # no fill: the dense factor of an arrow is an arrow
    np.testing.assert_allclose(dense_factor(T), np.linalg.cholesky(dense), **TIGHT)


@given(sizes, seeds)
def test_factor_methods(size, seed):
    T, x = random_factor(*size, seed), random_vector(*size, seed + 2)
    dense, b = dense_factor(T), dense_vector(x)
    solved, solved_transposed, product, square, log_determinant = factor_methods(T, x)
    np.testing.assert_allclose(dense_vector(solved), np.linalg.solve(dense, b), **TIGHT)
    np.testing.assert_allclose(dense_vector(solved_transposed), np.linalg.solve(dense.T, b), **TIGHT)
    np.testing.assert_allclose(dense_vector(product), dense.T @ b, **TIGHT)
    np.testing.assert_allclose(dense_matrix(square), dense @ dense.T, **TIGHT)
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(dense)[1], **TIGHT)


def test_log_determinant_ignores_the_signs_of_the_diagonal():
    T = random_factor(2, 3, 4, seed=5)
    diagonal = np.diag(dense_factor(T))
    assert (diagonal < 0).any() and (diagonal > 0).any()
    np.testing.assert_allclose(T.log_determinant(), np.log(np.abs(diagonal)).sum(), rtol=1e-13)


@given(sizes, seeds)
def test_cholesky_undoes_multiply_transposed_up_to_signs(size, seed):
    T = random_factor(*size, seed)
    signs = np.sign(np.diag(dense_factor(T)))
    *_, square, _ = factor_methods(T, random_vector(*size, 0))
    _, again = matrix_methods(square, random_vector(*size, 0))
    np.testing.assert_allclose(dense_factor(again), dense_factor(T) * signs, **TIGHT)


@given(sizes, seeds)
def test_pattern_is_closed_under_products(size, seed):
    r, _, n = size
    T, H = dense_factor(random_factor(*size, seed)), dense_factor(random_factor(*size, seed + 3))
    product = T @ H
    on_pattern = dense_factor(ArrowFactor(*(jnp.asarray(part) for part in pattern_parts(product, r, n))))
    np.testing.assert_array_equal(on_pattern, product)
    assert np.all(np.triu(product, 1) == 0.0)


@given(sizes, seeds)
def test_dense_mirror_is_a_bijection(size, seed):
    r, _, n = size
    x, H = random_vector(*size, seed), random_arrow(*size, seed)
    again = arrow_vector(dense_vector(x), r, n)
    np.testing.assert_array_equal(again.local, x.local)
    np.testing.assert_array_equal(again.shared, x.shared)
    for part, other in zip(pattern_parts(dense_matrix(H), r, n), H, strict=True):
        np.testing.assert_array_equal(part, other)
    eigenvalues = np.linalg.eigvalsh(dense_matrix(H))
    assert 1 - 1e-9 <= eigenvalues[0] and eigenvalues[-1] <= 30 + 1e-9


@pytest.mark.parametrize("part", ["local", "shared"])
def test_a_matrix_that_is_not_positive_definite_gives_nan(part):
    H = random_arrow(2, 3, 4, seed=0)
    if part == "local":
        broken = H._replace(local=H.local.at[:, :, 1].multiply(-1.0))
    else:  # every block is positive definite, the whole is not
        broken = H._replace(shared=1e-3 * jnp.eye(3))
        assert np.linalg.eigvalsh(dense_matrix(broken))[0] < 0
    T = quick_jit(ArrowMatrix.cholesky)(broken)
    assert np.isnan(T.log_determinant())
    assert np.isnan(np.asarray(T.shared)).any()
    healthy = np.isfinite(np.asarray(T.local)).all(axis=(0, 1))
    np.testing.assert_array_equal(healthy, [True, part == "shared", True, True])


def test_dtype_is_kept():
    def narrow(tree):
        return jax.tree.map(lambda a: a.astype(jnp.float32), tree)

    H, x = narrow(random_arrow(2, 3, 4, seed=0)), narrow(random_vector(2, 3, 4, seed=1))
    product, T = matrix_methods(H, x)
    for tree in (product, T, factor_methods(T, x)):
        assert {leaf.dtype for leaf in jax.tree.leaves(tree)} == {np.dtype(np.float32)}
