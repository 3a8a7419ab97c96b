"""The arrow against dense NumPy: every product, solve and factor, for all small sizes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natvi.linalg import ArrowFactor, ArrowMatrix, ArrowVector
from natvi.x64 import float64
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

# (r, g, n); few, because each is compiled once
sizes = st.sampled_from([(1, 1, 1), (1, 4, 5), (2, 1, 5), (2, 4, 1), (2, 3, 0), (3, 4, 5), (3, 1, 2)])
seeds = st.integers(0, 1000)
TIGHT = {"rtol": 1e-11, "atol": 1e-12}


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


@quick_jit
def matrix_methods(H: ArrowMatrix, x: ArrowVector) -> tuple:
    return H.matvec(x), H.cholesky()


class FactorAnswers(NamedTuple):
    """What a factor says, with x a vector."""

    solve: ArrowVector
    solve_transposed: ArrowVector
    product: ArrowVector
    transposed_product: ArrowVector
    square: ArrowMatrix
    log_determinant: jax.Array


@quick_jit
def factor_methods(T: ArrowFactor, x: ArrowVector) -> FactorAnswers:
    return FactorAnswers(
        T.solve(x),
        T.solve_transposed(x),
        T.product(x),
        T.transposed_product(x),
        T.square(),
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
    got = factor_methods(T, x)
    np.testing.assert_allclose(dense_vector(got.solve), np.linalg.solve(dense, b), **TIGHT)
    np.testing.assert_allclose(dense_vector(got.solve_transposed), np.linalg.solve(dense.T, b), **TIGHT)
    np.testing.assert_allclose(dense_vector(got.product), dense @ b, **TIGHT)
    np.testing.assert_allclose(dense_vector(got.transposed_product), dense.T @ b, **TIGHT)
    np.testing.assert_allclose(dense_matrix(got.square), dense @ dense.T, **TIGHT)
    np.testing.assert_allclose(got.log_determinant, np.linalg.slogdet(dense)[1], **TIGHT)


def test_log_determinant_ignores_the_signs_of_the_diagonal():
    T = random_factor(2, 3, 4, seed=5)
    diagonal = np.diag(dense_factor(T))
    assert (diagonal < 0).any() and (diagonal > 0).any()
    np.testing.assert_allclose(T.log_determinant(), np.log(np.abs(diagonal)).sum(), rtol=1e-13)


@given(sizes, seeds)
def test_cholesky_undoes_the_square_up_to_signs(size, seed):
    T = random_factor(*size, seed)
    signs = np.sign(np.diag(dense_factor(T)))
    square = factor_methods(T, random_vector(*size, 0)).square
    _, again = matrix_methods(square, random_vector(*size, 0))
    np.testing.assert_allclose(dense_factor(again), dense_factor(T) * signs, **TIGHT)


multiply = quick_jit(ArrowFactor.multiply)


@given(sizes, seeds)
def test_pattern_is_closed_under_products(size, seed):
    T, H = random_factor(*size, seed), random_factor(*size, seed + 3)
    product = dense_factor(T) @ dense_factor(H)
    np.testing.assert_allclose(dense_factor(multiply(T, H)), product, **TIGHT)
    r, _, n = size
    on_pattern = dense_factor(ArrowFactor(*(jnp.asarray(part) for part in pattern_parts(product, r, n))))
    np.testing.assert_array_equal(on_pattern, product)
    assert np.all(np.triu(product, 1) == 0.0)


def test_methods_for_natural_gradients():
    """half(T' G), a b', another diagonal and -Sigma hess T^-T are the dense results, cut to the pattern."""
    size = 2, 3, 4
    T, G, hess = random_factor(*size, 0), random_factor(*size, 1), random_arrow(*size, 2)
    a, b = random_vector(*size, 3), random_vector(*size, 4)
    ones = jax.tree.map(jnp.ones_like, a)

    @quick_jit
    def ask(T: ArrowFactor, G: ArrowFactor, hess: ArrowMatrix, a: ArrowVector, b: ArrowVector) -> tuple:
        return (
            (T.half_transposed_product(G), T.outer(a, b), T.with_diagonal(a), T.curvature_precision(hess)),
            T.outer(ones, ones),
            T.diagonal(),
        )

    got, mask, diagonal = ask(T, G, hess, a, b)
    mask, L, x, y = dense_factor(mask), dense_factor(T), dense_vector(a), dense_vector(b)
    product = L.T @ dense_factor(G)
    curvature = -np.linalg.solve(L @ L.T, dense_matrix(hess)) @ np.linalg.inv(L).T
    expected = (
        product - 0.5 * np.diag(np.diag(product)),
        np.outer(x, y),
        L + np.diag(x - np.diag(L)),
        curvature,
    )
    for one, dense in zip(got, expected, strict=True):
        np.testing.assert_allclose(dense_factor(one), mask * dense, **TIGHT)
    np.testing.assert_allclose(dense_vector(diagonal), np.diag(L), **TIGHT)
    assert mask.sum() == T.num_entries


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
