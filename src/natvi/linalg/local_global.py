"""Local blocks and one shared block, nothing between them: the block-diagonal factor of reparametrized mixed models.

    | A_1                  |
    |      ...             |        local:  (r, r, n)   A_i
    |           A_n        |        shared: (g, g)      S
    |                 S    |

It is `BlockFactor` for n equal blocks and one more (paper, Section 7.1), laid out like the arrow: vectors are
`ArrowVector`, the group axis is the last one, and no index is looked up.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from natvi.linalg import half_outer, small_blocks
from natvi.linalg.arrow import ArrowMatrix, ArrowVector
from natvi.linalg.dense import DenseFactor


class LocalGlobalMatrix(NamedTuple):
    """A symmetric matrix of local blocks and a shared block."""

    local: Float[Array, "r r n"]
    shared: Float[Array, "g g"]

    def covariance_factor(self) -> "LocalGlobalFactor":
        """Return the lower triangular C with `C C'` the inverse of this matrix; NaN where it is indefinite."""
        return LocalGlobalFactor(inverse_root(self.local), _inverse_root_of_one(self.shared))


class LocalGlobalFactor(NamedTuple):
    """A lower triangular F of local blocks and a shared block."""

    local: Float[Array, "r r n"]
    shared: Float[Array, "g g"]

    @classmethod
    def identity(cls, like: ArrowVector, local: float = 1.0, shared: float = 1.0) -> "LocalGlobalFactor":
        """Return multiples of the identity, one for the local blocks and one for the shared block."""
        (r, n), g = like.local.shape, like.shared.shape[0]
        return cls(jnp.repeat(local * jnp.eye(r)[..., None], n, axis=2), shared * jnp.eye(g))

    @property
    def num_entries(self) -> int:
        """The number of free entries."""
        r, n, g = self.local.shape[0], self.local.shape[2], self.shared.shape[0]
        return n * r * (r + 1) // 2 + g * (g + 1) // 2

    @property
    def in_small_blocks(self) -> bool:
        """Whether each entry meets few others: yes, those of its block."""
        return True

    def product(self, x: ArrowVector) -> ArrowVector:
        """Return `F x`."""
        return ArrowVector(block_product(self.local, x.local), self.shared @ x.shared)

    def transposed_product(self, x: ArrowVector) -> ArrowVector:
        """Return `F' x`."""
        return ArrowVector(block_product(self.local.swapaxes(0, 1), x.local), self.shared.T @ x.shared)

    def solve(self, b: ArrowVector) -> ArrowVector:
        """Return `F^-1 b`."""
        local = small_blocks.solve_lower(self.local, b.local)
        return ArrowVector(local, solve_triangular(self.shared, b.shared, lower=True))

    def solve_transposed(self, b: ArrowVector) -> ArrowVector:
        """Return `F^-T b`."""
        local = small_blocks.solve_upper(self.local, b.local)
        return ArrowVector(local, solve_triangular(self.shared, b.shared, lower=True, trans=1))

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det F|`; a negative diagonal entry is harmless."""
        local, shared = self.diagonal()
        return jnp.sum(jnp.log(jnp.abs(local))) + jnp.sum(jnp.log(jnp.abs(shared)))

    def diagonal(self) -> ArrowVector:
        """Return the diagonal."""
        return ArrowVector(block_diagonal(self.local), jnp.diagonal(self.shared))

    def with_diagonal(self, values: ArrowVector) -> "LocalGlobalFactor":
        """Return the factor with another diagonal."""
        eye = jnp.eye(self.local.shape[0])[..., None]
        local = self.local + eye * (values.local[:, None] - self.local)
        return LocalGlobalFactor(local, self.shared + jnp.diag(values.shared - jnp.diagonal(self.shared)))

    def outer(self, a: ArrowVector, b: ArrowVector) -> "LocalGlobalFactor":
        """Return `a b'` on the pattern."""
        return LocalGlobalFactor(
            small_blocks.lower(a.local[:, None] * b.local[None]), jnp.tril(jnp.outer(a.shared, b.shared))
        )

    def half_transposed_product(self, G: "LocalGlobalFactor") -> "LocalGlobalFactor":
        """Return half(F' G): the lower triangle of each block with the diagonal halved."""
        local = small_blocks.lower(matrix_product(self.local.swapaxes(0, 1), G.local))
        shared = jnp.tril(self.shared.T @ G.shared)
        local = local - 0.5 * jnp.eye(local.shape[0])[..., None] * local
        return LocalGlobalFactor(local, shared - 0.5 * jnp.diag(jnp.diagonal(shared)))

    def multiply(self, H: "LocalGlobalFactor") -> "LocalGlobalFactor":
        """Return `F H`, which has the same pattern."""
        return LocalGlobalFactor(matrix_product(self.local, H.local), self.shared @ H.shared)

    multiply_half_outer = half_outer.multiply_half_outer

    def curvature_covariance(self, hess: LocalGlobalMatrix) -> "LocalGlobalFactor":
        """Return `hess F` on the pattern: F1 of Theorem 2."""
        local = small_blocks.lower(matrix_product(hess.local, self.local))
        return LocalGlobalFactor(local, jnp.tril(hess.shared @ self.shared))

    def curvature_precision(self, hess: LocalGlobalMatrix) -> "LocalGlobalFactor":
        """Return `-Sigma hess F^-T` on the pattern: F2 of Theorem 2."""
        shared = DenseFactor(self.shared).curvature_precision(hess.shared)
        return LocalGlobalFactor(small_blocks.curvature_precision(self.local, hess.local), shared.matrix)

    # --- symmetric matrices on the pattern -----------------------------------------------------------------

    def restrict(self, matrix: ArrowMatrix | LocalGlobalMatrix) -> LocalGlobalMatrix:
        """Return the local and shared blocks of a symmetric matrix."""
        return LocalGlobalMatrix(matrix.local, matrix.shared)

    def gram(self, rows: ArrowVector) -> LocalGlobalMatrix:
        """Return `J' J` on the pattern, J the rows of groups: local `(r, n)`, shared `(g, n)` group by group."""
        local, shared = rows
        return LocalGlobalMatrix(local[:, None] * local[None], shared @ shared.T)

    def add_diagonal(self, matrix: LocalGlobalMatrix, amounts: ArrowVector) -> LocalGlobalMatrix:
        """Add a diagonal matrix to a symmetric one on the pattern."""
        eye = jnp.eye(self.local.shape[0])[..., None]
        return LocalGlobalMatrix(matrix.local + eye * amounts.local, matrix.shared + jnp.diag(amounts.shared))

    def square(self) -> LocalGlobalMatrix:
        """Return `F F'`."""
        return LocalGlobalMatrix(matrix_product(self.local, self.local.swapaxes(0, 1)), self.shared @ self.shared.T)

    def root_of(self, matrix: LocalGlobalMatrix) -> "LocalGlobalFactor":
        """Return the F with `F F'` a given matrix."""
        return LocalGlobalFactor(small_blocks.cholesky(matrix.local), jnp.linalg.cholesky(matrix.shared))

    def inverse_root_of(self, matrix: LocalGlobalMatrix) -> "LocalGlobalFactor":
        """Return the F with `F F'` the inverse of a given matrix."""
        return matrix.covariance_factor()

    def inverse_square(self) -> LocalGlobalMatrix:
        """Return `(F F')^-1`, the precision of a covariance factor."""
        local_inverse = small_blocks.solve_lower(self.local, small_blocks.identities(self.local))
        shared_inverse = solve_triangular(self.shared, jnp.eye(self.shared.shape[0]), lower=True)
        local = matrix_product(local_inverse.swapaxes(0, 1), local_inverse)
        return LocalGlobalMatrix(local, shared_inverse.T @ shared_inverse)

    def row_norms(self) -> ArrowVector:
        """Return the norm of every row: the marginal sds of a covariance factor."""
        return ArrowVector(jnp.sqrt(jnp.sum(self.local**2, axis=1)), jnp.sqrt(jnp.sum(self.shared**2, axis=1)))

    def inverse_column_norms(self) -> ArrowVector:
        """Return the norm of every column of `F^-1`: the marginal sds of a precision factor."""
        shared = DenseFactor(self.shared).inverse_column_norms()
        return ArrowVector(small_blocks.inverse_column_norms(self.local), shared)


def inverse_root(matrices: Float[Array, "r r n"]) -> Float[Array, "r r n"]:
    """Return the lower triangular L with `L L'` the inverse of each matrix of a stack.

    With the coordinates in reverse order A = R R' for a lower R; turned back, A = U U' for an upper U, and L = U^-T.

    Example:
        >>> import jax.numpy as jnp
        >>> float(inverse_root(jnp.full((1, 1, 1), 4.0))[0, 0, 0])
        0.5
    """
    R = small_blocks.cholesky(matrices[::-1, ::-1])
    return small_blocks.solve_lower(R, small_blocks.identities(R)).swapaxes(0, 1)[::-1, ::-1]


def _inverse_root_of_one(matrix: Float[Array, "g g"]) -> Float[Array, "g g"]:
    R = jnp.linalg.cholesky(matrix[::-1, ::-1])
    return solve_triangular(R, jnp.eye(R.shape[0]), lower=True).T[::-1, ::-1]


def block_product(blocks: Float[Array, "r r n"], x: Float[Array, "r n"]) -> Float[Array, "r n"]:
    """Return the product of each block with its own vector."""
    return jnp.sum(blocks * x[None], axis=1)


def block_diagonal(blocks: Float[Array, "r r n"]) -> Float[Array, "r n"]:
    """Return the diagonal of each block."""
    return jnp.stack([blocks[k, k] for k in range(blocks.shape[0])])


def matrix_product(a: Float[Array, "r r n"], b: Float[Array, "r r n"]) -> Float[Array, "r r n"]:
    """Return the products of two stacks of blocks, elementwise over the last axis."""
    return jnp.sum(a[:, :, None] * b[None], axis=1)
