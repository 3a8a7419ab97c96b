"""Natural gradients on patterns that are not closed: one solve for every column, against the explicit Fisher matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.linalg import OpenFactor, OpenPattern, PatternFactor
from natvi.natural import first_order_direction, natural_direction
from natvi.x64 import float64

# two levels of a factor, each meeting one of two effects of another, then an intercept: T_SS T_S1 would fill (2, 1)
BLOCKED = np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
CLOSED = np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])


def factor(mask: np.ndarray, seed: int) -> OpenFactor:
    rng = np.random.default_rng(seed)
    matrix = 0.4 * rng.normal(size=mask.shape) + np.diag(1.0 + rng.uniform(size=len(mask)))
    return OpenFactor(jnp.asarray(matrix * mask), OpenPattern.from_array(mask))


def explicit(F: np.ndarray, mask: np.ndarray, G: np.ndarray) -> np.ndarray:
    """Solve with F_ab = tr(M^-1 dM_a M^-1 dM_b) / 2, M = F F', over the free entries."""
    at, changes = np.nonzero(mask), []
    for i, j in zip(*at, strict=True):
        move = np.zeros_like(F)
        move[i, j] = 1.0
        changes.append(np.linalg.solve(F @ F.T, move @ F.T + F @ move.T))
    fisher = 0.5 * np.einsum("aij,bji->ab", np.array(changes), np.array(changes))
    found = np.zeros_like(F)
    found[at] = np.linalg.solve(fisher, G[at])
    return found


@pytest.mark.parametrize("kind", [CovarianceGaussian, PrecisionGaussian])
@pytest.mark.parametrize("mask", [BLOCKED, CLOSED])
def test_columns_give_the_explicit_natural_gradient(kind, mask):
    rng = np.random.default_rng(1)
    with float64():
        F = factor(mask, 0)
        q = kind(jnp.zeros(5), F)
        G = F.on_pattern(F.dense._replace(matrix=jnp.asarray(rng.normal(size=(5, 5)))))
        g = jnp.asarray(rng.normal(size=5))
        found = natural_direction(q, g, G)
        z, grad = jnp.asarray(rng.normal(size=5)), jnp.asarray(rng.normal(size=5))
        quick = first_order_direction(q, z, grad)
        slow = natural_direction(q, grad, q.first_order(z, grad))
        if mask is CLOSED:
            same = PatternFactor(F.matrix, OpenPattern.from_array(mask))
            np.testing.assert_allclose(
                same.multiply(same.half_transposed_product(PatternFactor(G.matrix, same.pattern))).matrix,
                found.factor.matrix,
                atol=1e-10,
            )
    np.testing.assert_allclose(
        found.factor.matrix, explicit(np.asarray(F.matrix), mask, np.asarray(G.matrix)), atol=1e-9
    )
    np.testing.assert_allclose(quick.factor.matrix, slow.factor.matrix, atol=1e-10)
    assert jax.tree.leaves(quick.mean)[0].shape == (5,)
