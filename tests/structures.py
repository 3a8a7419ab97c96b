"""The structures with random factors and dense mirrors: a new one adds a line and inherits the laws."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from new_structure import two_block_covariance, two_block_precision

from natvi.gaussian import (
    CovarianceGaussian,
    PrecisionGaussian,
    arrow_precision,
    block_covariance,
    dense_covariance,
    dense_precision,
    diagonal_covariance,
    local_global_covariance,
    pattern_covariance,
    pattern_precision,
)
from natvi.linalg import (
    ArrowFactor,
    ArrowMatrix,
    ArrowVector,
    BlockFactor,
    DenseFactor,
    DiagonalFactor,
    Formed,
    LocalGlobalFactor,
    PatternFactor,
)
from strategies import quick_jit


def comb(d: int) -> np.ndarray:
    """Return another closed pattern: even coordinates hang on earlier even ones, odd ones on the first."""
    rows, columns = np.indices((d, d))
    return np.tril((rows == columns) | (columns == 0) | ((rows % 2 == 0) & (columns % 2 == 0)))


def local_global(size: int) -> CovarianceGaussian:
    """Return local and shared blocks, nothing between them."""
    return local_global_covariance(ArrowVector(jnp.zeros((2, size)), jnp.zeros(size)))


def of_precision(gaussian: CovarianceGaussian) -> PrecisionGaussian:
    """Return the Gaussian whose T has the pattern, and here the entries, of a given C."""
    return PrecisionGaussian(gaussian.mean, gaussian.factor)


STRUCTURES: dict[str, Callable[[int], Any]] = {
    "diagonal": lambda size: diagonal_covariance(jnp.zeros(size)),
    "diagonal precision": lambda size: of_precision(diagonal_covariance(jnp.zeros(size))),
    "dense covariance": lambda size: dense_covariance(jnp.zeros(size)),
    "dense precision": lambda size: dense_precision(jnp.zeros(size)),
    "block covariance": lambda size: block_covariance(jnp.zeros(3 * size), (size, 1, size, size - 1)),
    "block precision": lambda size: of_precision(block_covariance(jnp.zeros(3 * size), (size, 1, size, size - 1))),
    "local-global covariance": local_global,
    "local-global precision": lambda size: of_precision(local_global(size)),
    "arrow precision": lambda size: arrow_precision(ArrowVector(jnp.zeros((2, size)), jnp.zeros(size))),
    "pattern covariance": lambda size: pattern_covariance(jnp.zeros(size + 2), comb(size + 2)),
    "pattern precision": lambda size: pattern_precision(jnp.zeros(size + 2), comb(size + 2)),
    "two blocks, covariance": lambda size: two_block_covariance(jnp.zeros(2 * size), size - 1),  # the guide's skeleton
    "two blocks, precision": lambda size: two_block_precision(jnp.zeros(2 * size), size - 1),
    "arrow precision, one effect": lambda size: arrow_precision(ArrowVector(jnp.zeros((1, size)), jnp.zeros(2))),
}


def flat(x: Any) -> np.ndarray:
    """Lay a vector out, the locals of an arrow group by group."""
    if isinstance(x, ArrowVector):
        return np.concatenate([np.asarray(x.local).T.ravel(), np.asarray(x.shared)])
    return np.asarray(x)


def unflat(x: np.ndarray, like: Any) -> Any:
    """Invert `flat`."""
    if isinstance(like, ArrowVector):
        r, n = like.local.shape
        return ArrowVector(jnp.asarray(x[: r * n].reshape(n, r).T), jnp.asarray(x[r * n :]))
    return jnp.asarray(x)


def dense(factor: Any) -> np.ndarray:
    """Return a factor as a matrix."""
    if isinstance(factor, DiagonalFactor):
        return np.diag(np.asarray(factor.values))
    if isinstance(factor, DenseFactor | PatternFactor):
        return np.asarray(factor.matrix)
    if isinstance(factor, BlockFactor):
        matrix = np.zeros((factor.layout.dimension,) * 2)
        for stack, index in zip(factor.stacks, factor.layout.indices, strict=True):
            matrix[index[:, None], index[None]] = np.asarray(stack)
        return matrix
    if isinstance(factor, LocalGlobalFactor):
        factor = ArrowFactor(factor.local, jnp.zeros((len(factor.shared), *factor.local.shape[1:])), factor.shared)
    if not isinstance(factor, ArrowFactor):  # a structure that is not laid out here by hand
        like = factor.diagonal()
        return np.stack([flat(factor.product(unflat(unit, like))) for unit in np.eye(len(flat(like)))], axis=1)
    local, cross, shared = (np.asarray(part) for part in factor)
    g, r, n = cross.shape
    matrix = np.zeros((r * n + g, r * n + g))
    for i in range(n):
        own = slice(r * i, r * i + r)
        matrix[own, own], matrix[r * n :, own] = local[..., i], cross[..., i]
    matrix[r * n :, r * n :] = shared
    return matrix


def pattern(factor: Any) -> tuple[np.ndarray, ...]:
    """Return the positions of the free entries in the dense matrix."""
    return np.nonzero(dense(_mask(factor)))


@quick_jit
def _mask(factor: Any) -> Any:
    """Return a factor of ones on the pattern."""
    ones = jax.tree.map(jnp.ones_like, factor.diagonal())
    return factor.outer(ones, ones)


def random_vector(like: Any, rng: np.random.Generator) -> Any:
    """Draw a standard normal vector."""
    return jax.tree.map(lambda a: jnp.asarray(rng.standard_normal(a.shape)), like)


def random_on_pattern(factor: Any, rng: np.random.Generator) -> Any:
    """Draw standard normal entries on the pattern."""
    return jax.tree.map(lambda m: jnp.asarray(np.asarray(m) * rng.standard_normal(m.shape)), _mask(factor))


def random_gaussian(name: str, size: int, seed: int) -> Any:
    """Draw a Gaussian of a structure: a random mean, a well conditioned factor with diagonal signs of both kinds."""
    rng = np.random.default_rng(seed)
    blank = STRUCTURES[name](size)
    factor = _well_conditioned(random_on_pattern(blank.factor, rng))
    return eqx.tree_at(lambda q: (q.mean, q.factor), blank, (random_vector(blank.mean, rng), factor))


@quick_jit
def _well_conditioned(factor: Any) -> Any:
    factor = jax.tree.map(lambda a: 0.3 * a, factor)
    signs = jax.tree.map(lambda a: jnp.where(a < 0, -1.0, 1.0) * (0.6 + 0.5 * jnp.abs(a)), factor.diagonal())
    return factor.with_diagonal(signs)


def covariance(gaussian: Any) -> np.ndarray:
    """Return the dense covariance."""
    F = dense(gaussian.factor)
    return F @ F.T if isinstance(gaussian, CovarianceGaussian) else np.linalg.inv(F @ F.T)


# --- symmetric matrices on a pattern -------------------------------------------------------------------------


def symmetric(factor: Any, matrix: np.ndarray) -> Any:
    """Return a dense symmetric matrix as the factor stores it."""
    vector = factor.diagonal()
    if not isinstance(vector, ArrowVector):
        return factor.restrict(Formed(jnp.asarray(matrix)))
    (r, n), g = vector.local.shape, len(vector.shared)
    local = np.stack([matrix[r * i : r * i + r, r * i : r * i + r] for i in range(n)], axis=2)
    cross = matrix[r * n :, : r * n].reshape(g, n, r).swapaxes(1, 2)
    return factor.restrict(ArrowMatrix(*map(jnp.asarray, (local, cross, matrix[r * n :, r * n :]))))


def unsymmetric(factor: Any, stored: Any) -> np.ndarray:
    """Invert `symmetric`, with zeros off the pattern."""
    F, leaves = jax.tree.structure(factor), jax.tree.leaves(stored)
    lower = np.tril(dense(jax.tree.unflatten(F, leaves)))
    return lower + np.tril(lower, -1).T
