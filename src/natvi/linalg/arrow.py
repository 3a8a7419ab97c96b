"""The arrow: n small local blocks, each tied to one shared block, and to nothing else.

    | A_1             .    |
    |      ...             |        local:  (r, r, n)   A_i
    |           A_n   .    |        cross:  (g, r, n)   B_i, the rows below A_i
    | B_1  ...  B_n   S    |        shared: (g, g)      S

It is the pattern of a hierarchical model's precision matrix and of its Cholesky factor (paper, Section 7.2):
eliminating the local blocks first creates no fill. Memory is linear in n; the group axis is the last one.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from natvi.linalg import small_blocks
from natvi.linalg.dense import DenseFactor
from natvi.over_hosts import add_up


class ArrowVector(NamedTuple):
    """A vector split like the arrow: `local` holds one r-vector per group."""

    local: Float[Array, "r n"]
    shared: Float[Array, " g"]


class ArrowMatrix(NamedTuple):
    """A symmetric matrix on the arrow pattern; only its lower part is stored."""

    local: Float[Array, "r r n"]
    cross: Float[Array, "g r n"]
    shared: Float[Array, "g g"]

    def matvec(self, x: ArrowVector) -> ArrowVector:
        """Return the product of the symmetric matrix with a vector."""
        local = jnp.sum(self.local * x.local[None], axis=1) + jnp.tensordot(x.shared, self.cross, axes=1)
        shared = add_up(jnp.tensordot(self.cross, x.local, axes=2)) + self.shared @ x.shared
        return ArrowVector(local, shared)

    def cholesky(self) -> "ArrowFactor":
        """Return T with `T T' =` this matrix; NaN entries where it is not positive definite."""
        # A_i = T_i T_i',  B_i = T_gi T_i',  S = T_g T_g' + sum_i T_gi T_gi'
        local = small_blocks.cholesky(self.local)
        cross = small_blocks.solve_lower(local, jnp.swapaxes(self.cross, 0, 1)).swapaxes(0, 1)
        flat = cross.reshape(cross.shape[0], -1)
        return ArrowFactor(local, cross, jnp.linalg.cholesky(self.shared - add_up(flat @ flat.T)))


class ArrowFactor(NamedTuple):
    """A lower triangular T on the arrow pattern."""

    local: Float[Array, "r r n"]
    cross: Float[Array, "g r n"]
    shared: Float[Array, "g g"]

    def solve(self, b: ArrowVector) -> ArrowVector:
        """Return `T^-1 b`."""
        local = small_blocks.solve_lower(self.local, b.local)
        rest = b.shared - add_up(jnp.tensordot(self.cross, local, axes=2))
        return ArrowVector(local, DenseFactor(self.shared).solve(rest))

    def solve_transposed(self, b: ArrowVector) -> ArrowVector:
        """Return `T^-T b`."""
        shared = DenseFactor(self.shared).solve_transposed(b.shared)
        rest = b.local - jnp.tensordot(shared, self.cross, axes=1)
        return ArrowVector(small_blocks.solve_upper(self.local, rest), shared)

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det T|`; a negative diagonal entry is harmless."""
        local = jnp.diagonal(self.local, axis1=0, axis2=1)
        return add_up(jnp.sum(jnp.log(jnp.abs(local)))) + jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.shared))))

    def product(self, x: ArrowVector) -> ArrowVector:
        """Return `T x`."""
        local = jnp.sum(self.local * x.local[None], axis=1)
        return ArrowVector(local, jnp.tensordot(self.cross, x.local, axes=2) + self.shared @ x.shared)

    def transposed_product(self, x: ArrowVector) -> ArrowVector:
        """Return `T' x`."""
        local = jnp.sum(self.local * x.local[:, None], axis=0) + jnp.tensordot(x.shared, self.cross, axes=1)
        return ArrowVector(local, self.shared.T @ x.shared)

    def row_norms(self) -> ArrowVector:
        """Return the norm of every row: the marginal sds of a covariance factor."""
        local = jnp.sqrt(jnp.sum(self.local**2, axis=1))
        return ArrowVector(local, jnp.sqrt(jnp.sum(self.cross**2, axis=(1, 2)) + jnp.sum(self.shared**2, axis=1)))

    def inverse_column_norms(self) -> ArrowVector:
        """Return the norm of every column of `T^-1`: the marginal sds of a precision factor."""
        R = solve_triangular(self.shared, jnp.eye(self.shared.shape[0]), lower=True)
        own = small_blocks.solve_lower(self.local, small_blocks.identities(self.local))  # T_i^-1
        # T^-1 has the blocks T_i^-1 and, below them, -R T_gi T_i^-1
        below = small_blocks.solve_upper(self.local, jnp.einsum("hg,grn->rhn", R, self.cross))
        local = jnp.sqrt(jnp.sum(own**2, axis=0) + jnp.sum(below**2, axis=1))
        return ArrowVector(local, jnp.sqrt(jnp.sum(R**2, axis=0)))

    # --- symmetric matrices on the pattern -----------------------------------------------------------------

    def restrict(self, matrix: ArrowMatrix) -> ArrowMatrix:
        """Return a symmetric matrix on the arrow as it is."""
        return matrix

    def gram(self, rows: ArrowVector) -> ArrowMatrix:
        """Return `J' J`, J the rows of groups: local `(r, n)`, shared `(g, n)` group by group."""
        local, shared = rows
        corner = jnp.einsum("gn,hn->gh", shared, shared)
        return ArrowMatrix(local[:, None] * local[None], shared[:, None] * local[None], corner)

    def add_diagonal(self, matrix: ArrowMatrix, amounts: ArrowVector) -> ArrowMatrix:
        """Add a diagonal matrix to a symmetric one on the pattern."""
        eye = jnp.eye(self.local.shape[0])[..., None]
        local, shared = matrix.local + eye * amounts.local, matrix.shared + jnp.diag(amounts.shared)
        return ArrowMatrix(local, matrix.cross, shared)

    def root_of(self, matrix: ArrowMatrix) -> "ArrowFactor":
        """Return the T with `T T'` a given matrix."""
        return matrix.cholesky()

    def square(self) -> ArrowMatrix:
        """Return `T T'`, which lies on the same pattern."""
        local = jnp.einsum("ikn,jkn->ijn", self.local, self.local)
        cross = jnp.einsum("gkn,jkn->gjn", self.cross, self.local)
        flat = self.cross.reshape(self.cross.shape[0], -1)
        return ArrowMatrix(local, cross, self.shared @ self.shared.T + flat @ flat.T)

    @property
    def in_small_blocks(self) -> bool:
        """Whether each entry meets few others: yes, those of its group and of the shared block."""
        return True

    @property
    def num_entries(self) -> int:
        """The number of free entries."""
        r, n, g = self.local.shape[0], self.local.shape[2], self.shared.shape[0]
        return n * (r * (r + 1) // 2 + g * r) + g * (g + 1) // 2

    def diagonal(self) -> ArrowVector:
        """Return the diagonal."""
        return ArrowVector(jnp.diagonal(self.local, axis1=0, axis2=1).T, jnp.diagonal(self.shared))

    def with_diagonal(self, values: ArrowVector) -> "ArrowFactor":
        """Return the factor with another diagonal."""
        eye = jnp.eye(self.local.shape[0])[..., None]
        local = self.local + eye * (values.local[:, None] - self.local)
        return ArrowFactor(local, self.cross, self.shared + jnp.diag(values.shared - jnp.diagonal(self.shared)))

    def outer(self, a: ArrowVector, b: ArrowVector) -> "ArrowFactor":
        """Return `a b'` on the pattern."""
        r = self.local.shape[0]
        local = a.local[:, None] * b.local[None] * jnp.tril(jnp.ones((r, r)))[..., None]
        return ArrowFactor(local, a.shared[:, None, None] * b.local[None], jnp.tril(jnp.outer(a.shared, b.shared)))

    def half_transposed_product(self, G: "ArrowFactor") -> "ArrowFactor":
        """Return half(T' G) on the pattern, as in Theorem 4.

        G is the Euclidean gradient, whose local blocks the paper calls A_i; its G_i have been multiplied already.
        """
        # (T'G)_ii = T_i' A_i + T_gi' G_gi,  (T'G)_gi = T_g' G_gi,  (T'G)_gg = T_g' G_g
        local = jnp.einsum("jin,jkn->ikn", self.local, G.local) + jnp.einsum("gin,gkn->ikn", self.cross, G.cross)
        cross = jnp.einsum("hg,hkn->gkn", self.shared, G.cross)
        corner = self.shared.T @ G.shared
        halve = jnp.tril(jnp.ones(local.shape[:2])) - 0.5 * jnp.eye(local.shape[0])
        return ArrowFactor(local * halve[..., None], cross, jnp.tril(corner) - 0.5 * jnp.diag(jnp.diagonal(corner)))

    def multiply(self, H: "ArrowFactor") -> "ArrowFactor":
        """Return `T H`, which has the same pattern."""
        local = jnp.einsum("ijn,jkn->ikn", self.local, H.local)
        cross = jnp.einsum("gjn,jkn->gkn", self.cross, H.local) + jnp.einsum("gh,hkn->gkn", self.shared, H.cross)
        return ArrowFactor(local, cross, self.shared @ H.shared)

    def multiply_half_outer(self, u: ArrowVector, z: ArrowVector) -> "ArrowFactor":
        """Return `T half(u z')` on the pattern: no product of matrices but small ones."""
        halve = jnp.tril(jnp.ones(self.local.shape[:2])) - 0.5 * jnp.eye(self.local.shape[0])
        H = u.local[:, None] * z.local[None] * halve[..., None]
        cross = jnp.sum(self.cross[:, :, None] * H[None], axis=1)
        cross += (self.shared @ u.shared)[:, None, None] * z.local[None]
        corner = jnp.outer(u.shared, z.shared)
        corner = jnp.tril(corner) - 0.5 * jnp.diag(jnp.diagonal(corner))
        return ArrowFactor(jnp.sum(self.local[:, :, None] * H[None], axis=1), cross, self.shared @ corner)

    def curvature_precision(self, hess: ArrowMatrix) -> "ArrowFactor":
        """Return `-Sigma hess T^-T` on the pattern: F2 of Theorem 2, sparse form of supplement S6.

        S6 prints T_i^-T T_gi where T_i^-T T_gi' is meant, and the (2,2) block with the sign reversed.
        """
        # M = T^-1 hess T^-T on the pattern, then F2 = -T^-T M
        eye = jnp.eye(self.shared.shape[0])
        R = solve_triangular(self.shared, eye, lower=True)
        half_local = small_blocks.solve_lower(self.local, hess.local)  # T_i^-1 H_ii
        M_local = small_blocks.solve_lower(self.local, half_local.swapaxes(0, 1))
        half_cross = small_blocks.solve_lower(self.local, hess.cross.swapaxes(0, 1)).swapaxes(0, 1)  # H_gi T_i^-T
        inner = half_cross - jnp.einsum("gjn,jkn->gkn", self.cross, M_local)
        M_cross = jnp.einsum("hg,gkn->hkn", R, inner)
        both = jnp.einsum("gkn,hkn->gh", self.cross, half_cross)
        square = jnp.einsum("gkn,hkn->gh", self.cross, jnp.einsum("gjn,jkn->gkn", self.cross, M_local))
        M_shared = R @ (hess.shared - both - both.T + square) @ R.T
        # T^-T M: row g is R' M_g, row i is T_i^-T (M_ii - T_gi' R' M_gi)
        down = jnp.einsum("hg,hkn->gkn", R, M_cross)
        own = M_local - jnp.einsum("gjn,gkn->jkn", self.cross, down)
        local = small_blocks.solve_upper(self.local, own) * jnp.tril(jnp.ones(own.shape[:2]))[..., None]
        return ArrowFactor(-local, -down, -jnp.tril(R.T @ M_shared))
