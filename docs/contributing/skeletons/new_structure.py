"""The skeleton of a new structure: a factor with two dense blocks, of the first coordinates and of the others.

Copy it to src/natvi/linalg/, rename it, and write your pattern into it. Everything that depends on the pattern is here:
the estimators, recipes, rules and loops of natvi run on it without a change. Symmetric matrices (Hessians, precisions)
are stored as far as the pattern goes, here as a pair of matrices.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.linalg import DenseFactor, Formed, half_outer
from natvi.linalg.on_demand import Symmetric

Pair = tuple[Float[Array, "a a"], Float[Array, "b b"]]  # a symmetric matrix on the pattern


class TwoBlocks(NamedTuple):
    """A lower triangular F of two dense blocks: closed, since products of blocks are blocks."""

    first: DenseFactor
    second: DenseFactor

    @classmethod
    def identity(cls, d: int, size: int, scale: float = 1.0) -> "TwoBlocks":
        """Return a multiple of the identity whose first block has `size` of the d coordinates."""
        if not 0 < size < d:
            raise ValueError(f"The first block takes between 1 and {d - 1} of {d} coordinates; got {size}.")
        return cls(DenseFactor.identity(size, scale), DenseFactor.identity(d - size, scale))

    @property
    def num_entries(self) -> int:
        """The number of free entries."""
        return self.first.num_entries + self.second.num_entries

    @property
    def in_small_blocks(self) -> bool:
        """Whether each entry meets few others: yes, those of its block."""
        return True

    # --- vectors: drawing, whitening, densities ------------------------------------------------------------

    def product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F x`."""
        return self._apply(DenseFactor.product, x)

    def transposed_product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F' x`."""
        return self._apply(DenseFactor.transposed_product, x)

    def solve(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-1 b`."""
        return self._apply(DenseFactor.solve, b)

    def solve_transposed(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-T b`."""
        return self._apply(DenseFactor.solve_transposed, b)

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det F|`."""
        return self.first.log_determinant() + self.second.log_determinant()

    def diagonal(self) -> Float[Array, " d"]:
        """Return the diagonal."""
        return jnp.concatenate([block.diagonal() for block in self])

    def with_diagonal(self, values: Float[Array, " d"]) -> "TwoBlocks":
        """Return the factor with another diagonal."""
        return self._map(DenseFactor.with_diagonal, self._cut(values))

    def row_norms(self) -> Float[Array, " d"]:
        """Return the norm of every row: the marginal sds where F is C."""
        return jnp.concatenate([block.row_norms() for block in self])

    def inverse_column_norms(self) -> Float[Array, " d"]:
        """Return the norm of every column of `F^-1`: the marginal sds where F is T."""
        return jnp.concatenate([block.inverse_column_norms() for block in self])

    # --- the natural gradient on the pattern ---------------------------------------------------------------

    def outer(self, a: Float[Array, " d"], b: Float[Array, " d"]) -> "TwoBlocks":
        """Return `a b'` on the pattern."""
        return self._map(DenseFactor.outer, self._cut(a), self._cut(b))

    def half_transposed_product(self, G: "TwoBlocks") -> "TwoBlocks":
        """Return half(F' G)."""
        return self._map(DenseFactor.half_transposed_product, G)

    def multiply(self, H: "TwoBlocks") -> "TwoBlocks":
        """Return `F H`, which has the same pattern."""
        return self._map(DenseFactor.multiply, H)

    multiply_half_outer = half_outer.multiply_half_outer  # the default; write your own if it can be cheaper

    def curvature_covariance(self, hess: Pair) -> "TwoBlocks":
        """Return `hess F` on the pattern: F1 of Theorem 2, where F is C."""
        return self._map(DenseFactor.curvature_covariance, hess)

    def curvature_precision(self, hess: Pair) -> "TwoBlocks":
        """Return `-Sigma hess F^-T` on the pattern: F2 of Theorem 2, where F is T."""
        return self._map(DenseFactor.curvature_precision, hess)

    # --- symmetric matrices on the pattern -----------------------------------------------------------------

    def restrict(self, matrix: Symmetric) -> Pair:
        """Return the two blocks of a symmetric matrix."""
        whole, k = matrix.dense(), self._size
        return whole[:k, :k], whole[k:, k:]

    def gram(self, rows: Float[Array, "s d"], weights: Float[Array, " s"] | None = None) -> Pair:
        """Return `sum_i w_i a_i a_i'` over rows a_i."""
        k = self._size
        return self.first.gram(rows[:, :k], weights), self.second.gram(rows[:, k:], weights)

    def add_diagonal(self, matrix: Pair, amounts: Float[Array, " d"]) -> Pair:
        """Add a diagonal matrix to a symmetric one."""
        return self.restrict(Formed(_join(matrix) + jnp.diag(amounts)))

    def square(self) -> Pair:
        """Return `F F'`: the precision where F is T."""
        return self.first.square(), self.second.square()

    def root_of(self, matrix: Pair) -> "TwoBlocks":
        """Return the F with `F F'` a given matrix."""
        return self._map(DenseFactor.root_of, matrix)

    def inverse_square(self) -> Pair:
        """Return `(F F')^-1`: the precision where F is C."""
        return self.first.inverse_square(), self.second.inverse_square()

    def inverse_root_of(self, matrix: Pair) -> "TwoBlocks":
        """Return the F with `F F'` the inverse of a given matrix."""
        return self._map(DenseFactor.inverse_root_of, matrix)

    # --- how a vector is cut -------------------------------------------------------------------------------

    @property
    def _size(self) -> int:
        return self.first.matrix.shape[0]

    def _cut(self, x: Float[Array, " d"]) -> tuple[Array, Array]:
        return x[: self._size], x[self._size :]

    def _apply(self, op: Callable[..., Array], x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.concatenate([op(block, part) for block, part in zip(self, self._cut(x), strict=True)])

    def _map(self, op: Callable[..., DenseFactor], *others: "TwoBlocks | Pair") -> "TwoBlocks":
        return TwoBlocks(*(op(*blocks) for blocks in zip(self, *others, strict=True)))


def _join(matrix: Pair) -> Float[Array, "d d"]:
    return jax.scipy.linalg.block_diag(*matrix)


# The starts, for src/natvi/gaussian/starts.py: the same factor as C and as T.


def two_block_covariance(mean: Float[Array, " d"], size: int, sd: float = 1.0) -> CovarianceGaussian:
    """Return two independent blocks, held by the factor C of their covariance."""
    return CovarianceGaussian(mean, TwoBlocks.identity(mean.shape[0], size, sd))


def two_block_precision(mean: Float[Array, " d"], size: int, sd: float = 1.0) -> PrecisionGaussian:
    """Return two independent blocks, held by the factor T of their precision."""
    return PrecisionGaussian(mean, TwoBlocks.identity(mean.shape[0], size, 1.0 / sd))
