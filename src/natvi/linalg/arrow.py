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
        shared = jnp.tensordot(self.cross, x.local, axes=2) + self.shared @ x.shared
        return ArrowVector(local, shared)

    def cholesky(self) -> "ArrowFactor":
        """Return T with `T T' =` this matrix; NaN entries where it is not positive definite."""
        # A_i = T_i T_i',  B_i = T_gi T_i',  S = T_g T_g' + sum_i T_gi T_gi'
        local = small_blocks.cholesky(self.local)
        cross = small_blocks.solve_lower(local, jnp.swapaxes(self.cross, 0, 1)).swapaxes(0, 1)
        flat = cross.reshape(cross.shape[0], -1)
        return ArrowFactor(local, cross, jnp.linalg.cholesky(self.shared - flat @ flat.T))


class ArrowFactor(NamedTuple):
    """A lower triangular T on the arrow pattern."""

    local: Float[Array, "r r n"]
    cross: Float[Array, "g r n"]
    shared: Float[Array, "g g"]

    def solve(self, b: ArrowVector) -> ArrowVector:
        """Return `T^-1 b`."""
        local = small_blocks.solve_lower(self.local, b.local)
        rest = b.shared - jnp.tensordot(self.cross, local, axes=2)
        return ArrowVector(local, solve_triangular(self.shared, rest, lower=True))

    def solve_transposed(self, b: ArrowVector) -> ArrowVector:
        """Return `T^-T b`."""
        shared = solve_triangular(self.shared, b.shared, lower=True, trans=1)
        rest = b.local - jnp.tensordot(shared, self.cross, axes=1)
        return ArrowVector(small_blocks.solve_upper(self.local, rest), shared)

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det T|`; a negative diagonal entry is harmless."""
        local = jnp.diagonal(self.local, axis1=0, axis2=1)
        return jnp.sum(jnp.log(jnp.abs(local))) + jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.shared))))

    def transposed_product(self, x: ArrowVector) -> ArrowVector:
        """Return `T' x`."""
        local = jnp.sum(self.local * x.local[:, None], axis=0) + jnp.tensordot(x.shared, self.cross, axes=1)
        return ArrowVector(local, self.shared.T @ x.shared)

    def multiply_transposed(self) -> ArrowMatrix:
        """Return `T T'`, which lies on the same pattern."""
        local = jnp.einsum("ikn,jkn->ijn", self.local, self.local)
        cross = jnp.einsum("gkn,jkn->gjn", self.cross, self.local)
        flat = self.cross.reshape(self.cross.shape[0], -1)
        return ArrowMatrix(local, cross, self.shared @ self.shared.T + flat @ flat.T)
