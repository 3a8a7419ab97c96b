"""A lower triangular factor on any pattern that is closed under products, stored densely: for small d.

Closed means that the product of two matrices on the pattern lies on it: where (i, k) and (k, j) belong to it, so does
(i, j). Only then is F half(F' G) the natural gradient (`natural.direction`).
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from natvi.linalg import half_outer
from natvi.linalg.dense import DenseFactor
from natvi.linalg.on_demand import Symmetric


@dataclass(frozen=True)
class ClosedPattern:
    """The free entries of a lower triangular d x d matrix, row by row."""

    entries: tuple[tuple[bool, ...], ...]

    @classmethod
    def from_array(cls, mask: np.ndarray) -> "ClosedPattern":
        """Check a boolean matrix and keep it.

        Raises:
            ValueError: If it is not square, has entries above the diagonal, lacks one of the diagonal, or is not closed
                under products.

        Example:
            >>> ClosedPattern.from_array(np.array([[1, 0], [1, 1]])).num_entries
            3
        """
        mask = lower_mask(mask)
        missing = np.argwhere((mask.astype(int) @ mask.astype(int) > 0) & ~mask)
        if len(missing):
            i, j = missing[0]
            k = int(np.flatnonzero(mask[i] & mask[:, j])[0])
            raise ValueError(
                f"Pattern not closed under products: ({i}, {k}) and ({k}, {j}) belong to it, ({i}, {j}) does not: "
                f"the natural gradient would be wrong. Add the {len(missing)} missing entries, e.g. with "
                "ClosedPattern.closure(mask), use a block, arrow or dense structure, or OpenPattern, whose natural "
                "gradient is a solve for every column."
            )
        return cls(tuple(tuple(bool(x) for x in row) for row in mask))

    @classmethod
    def closure(cls, mask: np.ndarray) -> "ClosedPattern":
        """Return the smallest closed pattern that contains a lower triangular one."""
        mask = (np.asarray(mask) != 0) | np.eye(len(mask), dtype=bool)
        for k in range(len(mask)):  # paths through k (Warshall)
            mask = mask | (mask[:, k, None] & mask[None, k])
        return cls.from_array(mask)

    @property
    def mask(self) -> np.ndarray:
        """The free entries as a matrix of booleans."""
        return np.array(self.entries)

    @property
    def num_entries(self) -> int:
        """The number of free entries."""
        return sum(map(sum, self.entries))


def lower_mask(mask: np.ndarray) -> np.ndarray:
    """Return a pattern as booleans: square, lower triangular, with the whole diagonal; or raise."""
    mask = np.asarray(mask) != 0
    if mask.ndim != 2 or mask.shape[0] != mask.shape[1] or mask.shape[0] == 0:
        raise ValueError(f"A pattern is a square matrix of zeros and ones; got shape {mask.shape}.")
    if np.triu(mask, 1).any():
        i, j = np.argwhere(np.triu(mask, 1))[0]
        raise ValueError(f"A pattern is lower triangular; entry ({i}, {j}) lies above the diagonal: numpy.tril.")
    if not np.diagonal(mask).all():
        i = int(np.argmin(np.diagonal(mask)))
        raise ValueError(f"A pattern contains the whole diagonal; entry ({i}, {i}) is missing.")
    return mask


class PatternFactor(eqx.Module):
    """A lower triangular d x d matrix F that is zero off its pattern."""

    matrix: Float[Array, "d d"]
    pattern: ClosedPattern = eqx.field(static=True)

    @classmethod
    def identity(cls, pattern: ClosedPattern, scale: float = 1.0) -> "PatternFactor":
        """Return a multiple of the identity."""
        return cls(scale * jnp.eye(len(pattern.entries)), pattern)

    @property
    def num_entries(self) -> int:
        """The number of free entries."""
        return self.pattern.num_entries

    @property
    def in_small_blocks(self) -> bool:
        """Whether each entry meets few others: nothing is known of that."""
        return False

    @property
    def dense(self) -> DenseFactor:
        """The same matrix without its pattern."""
        return DenseFactor(self.matrix)

    def product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F x`."""
        return self.dense.product(x)

    def transposed_product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F' x`."""
        return self.dense.transposed_product(x)

    def solve(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-1 b`."""
        return self.dense.solve(b)

    def solve_transposed(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-T b`."""
        return self.dense.solve_transposed(b)

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det F|`; a negative diagonal entry is harmless."""
        return self.dense.log_determinant()

    def diagonal(self) -> Float[Array, " d"]:
        """Return the diagonal."""
        return self.dense.diagonal()

    def with_diagonal(self, values: Float[Array, " d"]) -> "PatternFactor":
        """Return the factor with another diagonal."""
        return self.on_pattern(self.dense.with_diagonal(values))

    def row_norms(self) -> Float[Array, " d"]:
        """Return the norm of every row: the marginal sds of a covariance factor."""
        return self.dense.row_norms()

    def inverse_column_norms(self) -> Float[Array, " d"]:
        """Return the norm of every column of `F^-1`: the marginal sds of a precision factor."""
        return self.dense.inverse_column_norms()

    def outer(self, a: Float[Array, " d"], b: Float[Array, " d"]) -> "PatternFactor":
        """Return `a b'` on the pattern."""
        return self.on_pattern(self.dense.outer(a, b))

    def half_transposed_product(self, G: "PatternFactor") -> "PatternFactor":
        """Return half(F' G): its entries on the pattern with the diagonal halved."""
        return self.on_pattern(self.dense.half_transposed_product(G.dense))

    def multiply(self, H: "PatternFactor") -> "PatternFactor":
        """Return `F H`, which has the same pattern because the pattern is closed."""
        return self.on_pattern(self.dense.multiply(H.dense))

    multiply_half_outer = half_outer.multiply_half_outer

    def curvature_covariance(self, hess: Float[Array, "d d"]) -> "PatternFactor":
        """Return `hess F` on the pattern: F1 of Theorem 2 with F = C."""
        return self.on_pattern(self.dense.curvature_covariance(hess))

    def curvature_precision(self, hess: Float[Array, "d d"]) -> "PatternFactor":
        """Return `-Sigma hess F^-T` on the pattern: F2 of Theorem 2 with F = T."""
        return self.on_pattern(self.dense.curvature_precision(hess))

    # --- symmetric matrices, whole: F F' may have entries where F has none -----------------------------------

    def restrict(self, matrix: Symmetric) -> Float[Array, "d d"]:
        """Return a symmetric matrix as it is."""
        return matrix.dense()

    def gram(self, rows: Float[Array, "k d"], weights: Float[Array, " k"] | None = None) -> Float[Array, "d d"]:
        """Return `sum_i w_i a_i a_i'` over rows a_i."""
        return self.dense.gram(rows, weights)

    def add_diagonal(self, matrix: Float[Array, "d d"], amounts: Float[Array, " d"]) -> Float[Array, "d d"]:
        """Add a diagonal matrix to a symmetric one."""
        return self.dense.add_diagonal(matrix, amounts)

    def square(self) -> Float[Array, "d d"]:
        """Return `F F'`."""
        return self.dense.square()

    def inverse_square(self) -> Float[Array, "d d"]:
        """Return `(F F')^-1`."""
        return self.dense.inverse_square()

    def root_of(self, matrix: Float[Array, "d d"]) -> "PatternFactor":
        """Return the F on the pattern whose N(0, (F F')^-1) is closest to the one with a given precision S.

        Column j of F holds the regression of coordinate j on the later ones that its pattern names: with Sigma = S^-1
        and s the coordinates of the column, F_sj = Sigma_ss^-1 e_j / sqrt(e_j' Sigma_ss^-1 e_j) minimises
        KL(N(0, Sigma) || N(0, (F F')^-1)). Where S has a factor on the pattern, this is it.
        """
        columns = _regressions(jnp.linalg.inv(matrix), self.pattern.mask.T)
        return self.on_pattern(DenseFactor(columns.T))

    def inverse_root_of(self, matrix: Float[Array, "d d"]) -> "PatternFactor":
        """Return the F on the pattern whose N(0, F F') is closest to the one with a given precision.

        The inverse of a matrix on a closed pattern lies on it too: row i of F^-1 holds the regression of coordinate i
        on the earlier ones that its pattern names, closest in the sense of `root_of`.
        """
        rows = _regressions(jnp.linalg.inv(matrix), self.pattern.mask)
        eye = jnp.eye(rows.shape[0], dtype=rows.dtype)
        return self.on_pattern(DenseFactor(solve_triangular(rows, eye, lower=True)))

    def on_pattern(self, factor: DenseFactor) -> "PatternFactor":
        """Return a factor of this kind: another matrix, zero off the pattern."""
        return type(self)(jnp.where(self.pattern.mask, factor.matrix, 0.0), self.pattern)


def _regressions(covariance: Float[Array, "d d"], sets: np.ndarray) -> Float[Array, "d d"]:
    """Return in row i `Sigma_ss^-1 e_i / sqrt(e_i' Sigma_ss^-1 e_i)`, s the coordinates that row i of `sets` names."""
    eye = jnp.eye(len(sets), dtype=covariance.dtype)

    def one(own: Array, unit: Array) -> Array:
        within = jnp.where(own[:, None] & own[None], covariance, eye)
        solved = jnp.linalg.solve(within, unit)
        return solved / jnp.sqrt(solved @ unit)

    return jax.vmap(one)(jnp.asarray(sets), eye)
