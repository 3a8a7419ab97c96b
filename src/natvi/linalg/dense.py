"""A dense lower triangular factor."""

from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from natvi.linalg.on_demand import Symmetric

WIDE, STRIPS = 256, 4  # from how many rows an inverse is found in strips, and in how many


def inverse_gram(T: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Return (T T')^-1 for a lower triangular T, zeros above the diagonal of T^-1 left out: 1.1 d³ operations, not 3.

    Example:
        >>> inverse_gram(jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
        [[0.25, 0.0], [0.0, 0.0625]]
    """
    d = T.shape[0]
    cuts = [0, d] if d < WIDE else [d * k // STRIPS for k in range(STRIPS + 1)]
    # strips of R = T^-1: columns a to b, rows from a on
    strips = [solve_triangular(T[a:, a:], jnp.eye(d - a, b - a), lower=True) for a, b in pairwise(cuts)]
    if len(strips) == 1:
        return strips[0].T @ strips[0]
    rows = []
    for i, strip in enumerate(strips):  # (R'R)_ij sums over the rows that both have
        rows.append([strip.T @ strips[j][cuts[i] - cuts[j] :] for j in range(i + 1)])
    blocks = [[rows[max(i, j)][min(i, j)] for j in range(len(rows))] for i in range(len(rows))]
    return jnp.block([[block if j <= i else block.T for j, block in enumerate(row)] for i, row in enumerate(blocks)])


class DenseFactor(NamedTuple):
    """A lower triangular d x d matrix F; entries above the diagonal are zero."""

    matrix: Float[Array, "d d"]

    @classmethod
    def identity(cls, d: int, scale: float = 1.0) -> "DenseFactor":
        """Return a multiple of the identity."""
        return cls(scale * jnp.eye(d))

    @property
    def num_entries(self) -> int:
        """The number of free entries."""
        d = self.matrix.shape[0]
        return d * (d + 1) // 2

    @property
    def in_small_blocks(self) -> bool:
        """Whether each entry meets few others: no."""
        return False

    def product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F x`."""
        return self.matrix @ x

    def transposed_product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F' x`."""
        return self.matrix.T @ x

    def solve(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-1 b`."""
        return solve_triangular(self.matrix.T, b, lower=False, trans=1)  # LAPACK reads columns: F' is there uncopied

    def solve_transposed(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-T b`."""
        return solve_triangular(self.matrix.T, b, lower=False)

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det F|`; a negative diagonal entry is harmless."""
        return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.matrix))))

    def diagonal(self) -> Float[Array, " d"]:
        """Return the diagonal."""
        return jnp.diagonal(self.matrix)

    def with_diagonal(self, values: Float[Array, " d"]) -> "DenseFactor":
        """Return the factor with another diagonal."""
        return DenseFactor(self.matrix - jnp.diag(jnp.diagonal(self.matrix)) + jnp.diag(values))

    def row_norms(self) -> Float[Array, " d"]:
        """Return the norm of every row: the marginal sds of a covariance factor."""
        return jnp.sqrt(jnp.sum(self.matrix**2, axis=1))

    def inverse_column_norms(self) -> Float[Array, " d"]:
        """Return the norm of every column of `F^-1`: the marginal sds of a precision factor."""
        inverse = solve_triangular(self.matrix, jnp.eye(self.matrix.shape[0], dtype=self.matrix.dtype), lower=True)
        return jnp.sqrt(jnp.sum(inverse**2, axis=0))

    def outer(self, a: Float[Array, " d"], b: Float[Array, " d"]) -> "DenseFactor":
        """Return `a b'` on the pattern."""
        return DenseFactor(jnp.tril(jnp.outer(a, b)))

    def half_transposed_product(self, G: "DenseFactor") -> "DenseFactor":
        """Return half(F' G): its lower triangle with the diagonal halved."""
        H = self.matrix.T @ G.matrix
        rows, columns = jnp.indices(H.shape, sparse=True)
        return DenseFactor(jnp.where(rows > columns, H, jnp.where(rows == columns, 0.5 * H, 0.0)))

    def multiply(self, H: "DenseFactor") -> "DenseFactor":
        """Return `F H`, which has the same pattern."""
        return DenseFactor(self.matrix @ H.matrix)

    def multiply_half_outer(self, u: Float[Array, " d"], z: Float[Array, " d"]) -> "DenseFactor":
        """Return `F half(u z')` in d^2 operations: entry (i, j) is z_j (sum over k > j of F_ik u_k + F_ij u_j / 2)."""
        M = self.matrix * u
        return DenseFactor((_sums_from_right(M) - 0.5 * M) * z)

    def curvature_covariance(self, hess: Float[Array, "d d"]) -> "DenseFactor":
        """Return `hess F` on the pattern: F1 of Theorem 2 with F = C."""
        return DenseFactor(jnp.tril(hess @ self.matrix))

    def curvature_precision(self, hess: Float[Array, "d d"]) -> "DenseFactor":
        """Return `-Sigma hess F^-T` on the pattern: F2 of Theorem 2 with F = T."""
        inner = solve_triangular(self.matrix, solve_triangular(self.matrix, hess, lower=True).T, lower=True)
        return DenseFactor(-jnp.tril(solve_triangular(self.matrix, inner, lower=True, trans=1)))

    # --- symmetric matrices on the pattern: all of them ----------------------------------------------------

    def restrict(self, matrix: Symmetric) -> Float[Array, "d d"]:
        """Return a symmetric matrix as it is."""
        return matrix.dense()

    def gram(self, rows: Float[Array, "k d"], weights: Float[Array, " k"] | None = None) -> Float[Array, "d d"]:
        """Return `sum_i w_i a_i a_i'` over rows a_i."""
        return (rows.T if weights is None else rows.T * weights) @ rows

    def add_diagonal(self, matrix: Float[Array, "d d"], amounts: Float[Array, " d"]) -> Float[Array, "d d"]:
        """Add a diagonal matrix to a symmetric one."""
        return matrix + jnp.diag(amounts)

    def square(self) -> Float[Array, "d d"]:
        """Return `F F'`."""
        return self.matrix @ self.matrix.T

    def inverse_square(self) -> Float[Array, "d d"]:
        """Return `(F F')^-1`."""
        return jnp.linalg.inv(self.square())

    def root_of(self, matrix: Float[Array, "d d"]) -> "DenseFactor":
        """Return the F with `F F'` a given matrix."""
        return DenseFactor(jnp.linalg.cholesky(matrix))

    def inverse_root_of(self, matrix: Float[Array, "d d"]) -> "DenseFactor":
        """Return the F with `F F'` the inverse of a given matrix."""
        return DenseFactor(jnp.linalg.cholesky(jnp.linalg.inv(matrix)))


def _sums_from_right(M: Float[Array, "d d"], width: int = 16) -> Float[Array, "d d"]:
    """Return sum over k >= j of M_ik: within blocks of columns, and over the blocks to their right."""
    d = M.shape[0]
    count = -(-d // width)
    blocks = jnp.pad(M, ((0, 0), (0, count * width - d))).reshape(d, count, width)
    within = blocks @ jnp.tril(jnp.ones((width, width), M.dtype))
    beyond = within[:, :, 0] @ jnp.tril(jnp.ones((count, count), M.dtype), -1)
    return (within + beyond[:, :, None]).reshape(d, count * width)[:, :d]
