"""The blocked pattern against dense matrices: every operation, and marginals of rows."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.gaussian.blocked_precision import BlockedPrecision
from natvi.linalg import ArrowVector, GroupedRows, layout_rows
from natvi.linalg.crossed.blocked import BlockedMatrix, CrossPattern, count_pairs_of_pairs, cross_pattern
from natvi.linalg.crossed.rows import CrossedRows
from natvi.linalg.dense import inverse_gram
from natvi.x64 import float64
from strategies import quick_jit

N, LEVELS, R, P, B = 60, 7, 2, 2, 4
SMALLER = (5, 3)  # levels of two smaller factors, one effect each


class Case(NamedTuple):
    design: CrossedRows
    pattern: CrossPattern
    rows: np.ndarray  # dense, (cells, d)
    filled: np.ndarray


@cache
def case() -> Case:
    rng = np.random.default_rng(3)
    level = np.concatenate([np.arange(LEVELS), rng.integers(0, LEVELS, N - LEVELS)])
    codes = np.stack([rng.integers(0, SMALLER[0], N), SMALLER[0] + rng.integers(0, SMALLER[1], N)])
    layout = layout_rows(level, LEVELS)
    pattern, pair = cross_pattern(layout.place_of_group[level], codes)
    X, Z, value = rng.normal(size=(P, N)), rng.normal(size=(R, N)), rng.normal(size=(2, N))
    with float64():
        rows = GroupedRows(
            *(jnp.asarray(layout.place(a)) for a in (X, Z, rng.normal(size=N))),
            jnp.asarray(layout.place(np.ones(N, bool), fill=False)),
            jnp.asarray(layout.extra),
            num_simple=layout.num_simple,
        )
        at, pair_at = (jnp.asarray(layout.place(a.astype(np.int32))) for a in (codes, pair))
        design = CrossedRows(rows, at, jnp.asarray(layout.place(value)), pair_at, sum(SMALLER), len(pattern.level))
        device = jax.tree.map(jnp.asarray, pattern)
    # coordinates in the order local (effect after effect), shared
    dense = np.zeros((N, R * LEVELS + B + sum(SMALLER)))
    place = layout.place_of_group[level]
    for k in range(R):
        dense[np.arange(N), k * LEVELS + place] = Z[k]
    dense[:, R * LEVELS : R * LEVELS + P] = X.T
    for k in range(2):
        dense[np.arange(N), R * LEVELS + B + codes[k]] += value[k]
    grid = np.moveaxis(layout.place(dense.T), 0, -1)
    return Case(design, device, grid, np.asarray(rows.filled))


def to_dense(matrix: BlockedMatrix, pattern: CrossPattern) -> np.ndarray:
    local, cross, pairs, shared = (np.asarray(part) for part in matrix)
    d = R * LEVELS
    full = np.zeros((d + len(shared),) * 2)
    full[d:, d:] = shared
    for i in range(LEVELS):
        own = np.arange(R) * LEVELS + i
        full[np.ix_(own, own)] = local[..., i]
        full[d : d + B, own] = cross[..., i]
    for e, (i, j) in enumerate(zip(np.asarray(pattern.level), np.asarray(pattern.coordinate), strict=True)):
        full[d + B + j, np.arange(R) * LEVELS + i] = pairs[:, e]
    full[:d, d:] = full[d:, :d].T
    return full


def flat(x: ArrowVector) -> np.ndarray:
    return np.concatenate([np.asarray(x.local).ravel(), np.asarray(x.shared)])


@cache
def some_precision() -> BlockedMatrix:
    """A gram of the rows, made firm, with something on the coordinates that rows do not touch."""
    design = case().design
    rng = np.random.default_rng(0)
    weight = np.where(np.asarray(design.rows.filled), rng.uniform(0.5, 2.0, design.rows.offset.shape), 0.0)
    gram = jax.tree.map(np.asarray, quick_jit(lambda w: design.gram(w, B))(weight))
    extra = rng.normal(size=(B, R, LEVELS)) * 0.05
    shared = np.eye(B + sum(SMALLER)) * 3.0 + 0.05
    firm = BlockedMatrix(gram.local + 2.0 * np.eye(R)[..., None], gram.cross + extra, gram.pairs, gram.shared + shared)
    return jax.tree.map(jnp.asarray, firm)


def test_the_gram_of_rows_is_that_of_the_dense_rows():
    design, pattern, rows, filled = case()
    with float64():
        w = np.where(filled, np.random.default_rng(1).uniform(size=filled.shape), 0.0)
        gram, product = quick_jit(lambda w: (design.gram(w, B), design.transposed_product(w, B)))(w)
        found, product = to_dense(gram, pattern), flat(product)
    A, weight = rows[filled], np.asarray(w)[filled]
    np.testing.assert_allclose(found, A.T @ (A * weight[:, None]), atol=1e-12)
    np.testing.assert_allclose(product, A.T @ weight, atol=1e-12)


def test_factor_solves_and_products_are_those_of_the_dense_matrix():
    pattern = case().pattern
    rng = np.random.default_rng(2)
    with float64():
        matrix = some_precision()
        full = to_dense(matrix, pattern)
        x = ArrowVector(jnp.asarray(rng.normal(size=(R, LEVELS))), jnp.asarray(rng.normal(size=B + sum(SMALLER))))

        @quick_jit
        def seen(matrix: BlockedMatrix, x: ArrowVector) -> tuple[ArrowVector, ArrowVector, jax.Array, BlockedMatrix]:
            factor = pattern.cholesky(matrix)
            solved = pattern.solve_transposed(factor, pattern.solve(factor, x))
            return solved, pattern.matvec(matrix, x), factor.log_determinant(), pattern.square(factor)

        solved, product, log_det, squared = seen(matrix, x)
    np.testing.assert_allclose(to_dense(squared, pattern), full, atol=1e-12)
    np.testing.assert_allclose(flat(product), full @ flat(x), atol=1e-10)
    np.testing.assert_allclose(flat(solved), np.linalg.solve(full, flat(x)), atol=1e-10)
    np.testing.assert_allclose(log_det, 0.5 * np.linalg.slogdet(full)[1], rtol=1e-12)


def test_the_factor_can_be_differentiated():
    pattern = case().pattern
    with float64():
        matrix = some_precision()

        def log_det(scale: jax.Array) -> jax.Array:
            bent = BlockedMatrix(matrix.local, scale * matrix.cross, scale * matrix.pairs, matrix.shared)
            return pattern.cholesky(bent, differentiable=True).log_determinant()

        slope, h = float(quick_jit(jax.grad(log_det))(1.0)), 1e-5
        value = quick_jit(log_det)
        difference = float(value(1 + h) - value(1 - h)) / (2 * h)
    assert slope == pytest.approx(difference, rel=1e-6)


def test_an_inverse_in_strips_is_the_inverse():
    d = 301
    with float64():
        T = jnp.tril(jnp.asarray(np.random.default_rng(0).normal(size=(d, d)))) / d + 2.0 * jnp.eye(d)
        found = np.asarray(quick_jit(inverse_gram)(T))
    np.testing.assert_allclose(found, np.linalg.inv(np.asarray(T) @ np.asarray(T).T), atol=1e-12)
    np.testing.assert_array_equal(found[:75, 150:], found[150:, :75].T)


def test_marginals_of_rows_levels_and_effects_are_those_of_the_dense_covariance():
    design, pattern, rows, filled = case()
    with float64():
        matrix = some_precision()
        full = to_dense(matrix, pattern)
        x = ArrowVector(jnp.ones((R, LEVELS)), jnp.arange(B + sum(SMALLER), dtype=jnp.float64))

        @quick_jit
        def seen(x: ArrowVector, matrix: BlockedMatrix) -> tuple:
            q = BlockedPrecision.from_natural(x, matrix, pattern)
            sought = q.level_moments(1, 4), q.effect_moments(B, (1, SMALLER[0]), 1, 4), q.marginal_sds()
            return q.row_moments(design, (P,)), *sought

        found, levels, effects, sds = jax.tree.map(np.asarray, seen(x, matrix))
    covariance = np.linalg.inv(full)
    mean = covariance @ flat(x)
    A, d = rows[filled], R * LEVELS
    np.testing.assert_allclose(found.mean[filled], A @ mean + np.asarray(design.rows.offset)[filled], atol=1e-9)
    np.testing.assert_allclose(found.variance[filled], np.sum(A @ covariance * A, axis=1), rtol=1e-9)
    np.testing.assert_allclose(found.covariance[0][filled], A @ covariance[:, d + P], atol=1e-10)
    np.testing.assert_allclose(flat(sds), np.sqrt(np.diag(covariance)), rtol=1e-9)
    for i in range(LEVELS):
        own = [*(np.arange(R) * LEVELS + i), d + 1, d + 2, d + 3]
        np.testing.assert_allclose(np.asarray(levels[1])[..., i], covariance[np.ix_(own, own)], atol=1e-10)
    for j in range(SMALLER[0]):
        own = [d + B + j, d + 1, d + 2, d + 3]
        np.testing.assert_allclose(np.asarray(effects[1])[..., j], covariance[np.ix_(own, own)], atol=1e-10)
        np.testing.assert_allclose(np.asarray(effects[0])[:, j], mean[own], atol=1e-9)


def test_draws_have_the_covariance_of_the_gaussian():
    pattern = case().pattern
    with float64():
        matrix = some_precision()
        x = ArrowVector(jnp.zeros((R, LEVELS)), jnp.zeros(B + sum(SMALLER)))
        q = quick_jit(BlockedPrecision.from_natural)(x, matrix, pattern)
        draws = quick_jit(jax.vmap(q.sample))(jax.random.split(jax.random.key(0), 4000))
    theta = np.concatenate([np.asarray(draws.local).reshape(4000, -1), np.asarray(draws.shared)], axis=1)
    T = np.linalg.cholesky(to_dense(matrix, pattern))
    z = theta @ T  # independent standard normals
    gram = z.T @ z / 4000
    assert np.max(np.abs(gram - np.eye(len(gram)))) < 6 * np.sqrt(2 / 4000)


def test_pairs_of_pairs_are_counted_before_they_are_listed():
    level = np.asarray(case().pattern.level)
    assert count_pairs_of_pairs(level) == len(case().pattern.higher)
    assert np.all(
        np.asarray(case().pattern.coordinate)[np.asarray(case().pattern.higher)]
        > np.asarray(case().pattern.coordinate)[np.asarray(case().pattern.lower)]
    )
