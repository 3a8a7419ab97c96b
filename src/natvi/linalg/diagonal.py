"""A diagonal factor."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.linalg import half_outer
from natvi.linalg.on_demand import Symmetric


class DiagonalFactor(NamedTuple):
    """A diagonal d x d matrix F, stored by its diagonal."""

    values: Float[Array, " d"]

    @classmethod
    def identity(cls, d: int, scale: float = 1.0) -> "DiagonalFactor":
        """Return a multiple of the identity."""
        return cls(jnp.full(d, scale))

    @property
    def num_entries(self) -> int:
        """The number of free entries."""
        return self.values.shape[0]

    @property
    def in_small_blocks(self) -> bool:
        """Whether each entry meets few others: yes, none."""
        return True

    def product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F x`."""
        return self.values * x

    def transposed_product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F' x`."""
        return self.values * x

    def solve(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-1 b`."""
        return b / self.values

    def solve_transposed(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-T b`."""
        return b / self.values

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det F|`; a negative entry is harmless."""
        return jnp.sum(jnp.log(jnp.abs(self.values)))

    def diagonal(self) -> Float[Array, " d"]:
        """Return the diagonal."""
        return self.values

    def with_diagonal(self, values: Float[Array, " d"]) -> "DiagonalFactor":
        """Return the factor with another diagonal."""
        return DiagonalFactor(values)

    def row_norms(self) -> Float[Array, " d"]:
        """Return the norm of every row: the marginal sds of a covariance factor."""
        return jnp.abs(self.values)

    def inverse_column_norms(self) -> Float[Array, " d"]:
        """Return the norm of every column of `F^-1`: the marginal sds of a precision factor."""
        return 1.0 / jnp.abs(self.values)

    def outer(self, a: Float[Array, " d"], b: Float[Array, " d"]) -> "DiagonalFactor":
        """Return `a b'` on the pattern."""
        return DiagonalFactor(a * b)

    def half_transposed_product(self, G: "DiagonalFactor") -> "DiagonalFactor":
        """Return half(F' G)."""
        return DiagonalFactor(0.5 * self.values * G.values)

    def multiply(self, H: "DiagonalFactor") -> "DiagonalFactor":
        """Return `F H`, which has the same pattern."""
        return DiagonalFactor(self.values * H.values)

    multiply_half_outer = half_outer.multiply_half_outer

    def curvature_covariance(self, hess: Float[Array, " d"]) -> "DiagonalFactor":
        """Return `hess F` on the pattern, from the diagonal of the Hessian: F1 of Theorem 2."""
        return DiagonalFactor(hess * self.values)

    def curvature_precision(self, hess: Float[Array, " d"]) -> "DiagonalFactor":
        """Return `-Sigma hess F^-T` on the pattern, from the diagonal of the Hessian: F2 of Theorem 2."""
        return DiagonalFactor(-hess / self.values**3)

    # --- symmetric matrices on the pattern, by their diagonal ----------------------------------------------

    def restrict(self, matrix: Symmetric) -> Float[Array, " d"]:
        """Return the diagonal of a symmetric matrix."""
        return matrix.diagonal()

    def gram(self, rows: Float[Array, "k d"], weights: Float[Array, " k"] | None = None) -> Float[Array, " d"]:
        """Return the diagonal of `sum_i w_i a_i a_i'` over rows a_i."""
        return jnp.sum(rows**2, axis=0) if weights is None else weights @ rows**2

    def add_diagonal(self, matrix: Float[Array, " d"], amounts: Float[Array, " d"]) -> Float[Array, " d"]:
        """Add a diagonal matrix to a diagonal one."""
        return matrix + amounts

    def square(self) -> Float[Array, " d"]:
        """Return `F F'`."""
        return self.values**2

    def inverse_square(self) -> Float[Array, " d"]:
        """Return `(F F')^-1`."""
        return self.values**-2.0

    def root_of(self, matrix: Float[Array, " d"]) -> "DiagonalFactor":
        """Return the F with `F F'` a given matrix."""
        return DiagonalFactor(jnp.sqrt(matrix))

    def inverse_root_of(self, matrix: Float[Array, " d"]) -> "DiagonalFactor":
        """Return the F with `F F'` the inverse of a given matrix."""
        return DiagonalFactor(matrix**-0.5)
