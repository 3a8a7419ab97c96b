"""The natural gradient of every structure against the explicit Fisher matrix."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import structures as st
from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.linalg import DenseFactor, vector
from natvi.natural import first_order_direction, natural_direction
from natvi.natural.fisher import fisher_information
from natvi.x64 import float64
from strategies import quick_jit

quick_direction = quick_jit(natural_direction)


def explicit_information(gaussian):
    """Return the Fisher matrix in (mean, free entries): F_ab = tr(M^-1 dM_a M^-1 dM_b) / 2 with M = F F'."""
    F, at = st.dense(gaussian.factor), st.pattern(gaussian.factor)
    d = len(F)
    square = F @ F.T
    changes = []
    for i, j in zip(*at, strict=True):
        move = np.zeros((d, d))
        move[i, j] = 1.0
        changes.append(np.linalg.solve(square, move @ F.T + F @ move.T))
    changes = np.array(changes)
    fisher = np.zeros((d + len(changes),) * 2)
    fisher[:d, :d] = np.linalg.inv(square) if isinstance(gaussian, CovarianceGaussian) else square
    fisher[d:, d:] = 0.5 * np.einsum("aij,bji->ab", changes, changes)
    return fisher, at


def explicit(gaussian, g, G):
    """Solve with the explicit Fisher matrix in (mean, free entries)."""
    fisher, at = explicit_information(gaussian)
    return np.linalg.solve(fisher, np.concatenate([st.flat(g), st.dense(G)[at]])), at


@pytest.mark.parametrize("name", ["dense covariance", "arrow precision"])
def test_the_explicit_matrix_is_the_hessian_of_the_divergence(name):
    with float64():
        gaussian = st.random_gaussian(name, 2, 4)
        expected, at = explicit_information(gaussian)
        d = len(st.flat(gaussian.mean))

        def covariance_of(entries):
            F = jnp.zeros((d, d)).at[at].set(entries)
            return F @ F.T if isinstance(gaussian, CovarianceGaussian) else jnp.linalg.inv(F @ F.T)

        found = quick_jit(lambda entries: fisher_information(covariance_of, entries, d))
        found = found(jnp.asarray(st.dense(gaussian.factor)[at]))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", st.STRUCTURES)
@settings(max_examples=6)
@given(size=hs.integers(2, 4), seed=hs.integers(0, 10_000))
def test_equals_the_explicit_fisher_solve(name, size, seed):
    with float64():
        rng = np.random.default_rng(seed + 1)
        gaussian = st.random_gaussian(name, size, seed)
        g, G = st.random_vector(gaussian.mean, rng), st.random_on_pattern(gaussian.factor, rng)
        direction = quick_direction(gaussian, g, G)
        expected, at = explicit(gaussian, g, G)
        found = np.concatenate([st.flat(direction.mean), st.dense(direction.factor)[at]])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("name", st.STRUCTURES)
def test_the_pattern_is_kept(name):
    with float64():
        rng = np.random.default_rng(3)
        gaussian = st.random_gaussian(name, 3, 2)
        G = st.random_on_pattern(gaussian.factor, rng)
        direction = quick_direction(gaussian, st.random_vector(gaussian.mean, rng), G)
        outside = st.dense(direction.factor).copy()
        outside[st.pattern(gaussian.factor)] = 0.0
        assert np.all(outside == 0.0)
        assert gaussian.factor.num_entries == len(st.pattern(gaussian.factor)[0])


def test_a_part_of_the_dense_natural_gradient_is_not_the_sparse_one():
    with float64():
        rng = np.random.default_rng(0)
        arrow = st.random_gaussian("arrow precision", 2, 1)
        G, g = st.random_on_pattern(arrow.factor, rng), st.random_vector(arrow.mean, rng)
        full = PrecisionGaussian(jnp.asarray(st.flat(arrow.mean)), DenseFactor(jnp.asarray(st.dense(arrow.factor))))
        # the dense gradient has entries off the pattern; on it both agree
        dense_G = np.tril(rng.standard_normal(st.dense(G).shape))
        at = st.pattern(arrow.factor)
        dense_G[at] = st.dense(G)[at]
        dense_direction = quick_direction(full, jnp.asarray(st.flat(g)), DenseFactor(jnp.asarray(dense_G)))
        sparse_direction = quick_direction(arrow, g, G)
        gap = st.dense(dense_direction.factor)[at] - st.dense(sparse_direction.factor)[at]
        assert np.abs(gap).max() > 0.1


@pytest.mark.parametrize("name", ["dense precision", "arrow precision"])
def test_corollary_1_is_the_update_of_the_transformed_parameter(name):
    """(T_new' mu_new) = T' mu + rho (T^-1 g + H' T' mu) has the solution of Corollary 1."""
    with float64():
        rng = np.random.default_rng(5)
        gaussian = st.random_gaussian(name, 3, 4)
        g, G = st.random_vector(gaussian.mean, rng), st.random_on_pattern(gaussian.factor, rng)
        rho = 0.1
        direction = quick_direction(gaussian, g, G)
        T, mu = st.dense(gaussian.factor), st.flat(gaussian.mean)
        H = np.linalg.solve(T, st.dense(direction.factor))
        T_new = T + rho * T @ H
        expected = np.linalg.solve(T_new.T, T.T @ mu + rho * (np.linalg.solve(T, st.flat(g)) + H.T @ T.T @ mu))
        rebuilt = jax_factor(gaussian.factor, direction.factor, rho)
        found = mu + rho * st.flat(gaussian.moved_mean(rebuilt, g, direction.mean))
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def jax_factor(factor, direction, rho):
    return type(factor)(*(f + rho * d for f, d in zip(factor, direction, strict=True)))


@quick_jit
def both_ways(q, z, grad):
    """The direction of one draw without a matrix and through it, without and with the entropy."""
    with_entropy = vector.add(grad, q.score(z), -1.0)
    return (
        (first_order_direction(q, z, grad), natural_direction(q, grad, q.first_order(z, grad))),
        (
            first_order_direction(q, z, grad, entropy=True),
            natural_direction(q, with_entropy, q.first_order(z, with_entropy)),
        ),
    )


@pytest.mark.parametrize("size", [2, 17])
@pytest.mark.parametrize("name", st.STRUCTURES)
def test_direction_of_one_draw_needs_no_matrix(name, size):
    with float64():
        q, rng = st.random_gaussian(name, size, 3), np.random.default_rng(size)
        z, grad = st.random_vector(q.mean, rng), st.random_vector(q.mean, rng)
        for quick, slow in both_ways(q, z, grad):
            np.testing.assert_allclose(st.flat(quick.mean), st.flat(slow.mean), rtol=1e-9, atol=1e-9)
            scale = np.abs(st.dense(slow.factor)).max()
            np.testing.assert_allclose(st.dense(quick.factor), st.dense(slow.factor), atol=1e-10 * scale)
