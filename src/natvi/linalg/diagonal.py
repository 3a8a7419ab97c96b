"""A diagonal factor."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


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

    def outer(self, a: Float[Array, " d"], b: Float[Array, " d"]) -> "DiagonalFactor":
        """Return `a b'` on the pattern."""
        return DiagonalFactor(a * b)

    def half_transposed_product(self, G: "DiagonalFactor") -> "DiagonalFactor":
        """Return half(F' G)."""
        return DiagonalFactor(0.5 * self.values * G.values)

    def multiply(self, H: "DiagonalFactor") -> "DiagonalFactor":
        """Return `F H`, which has the same pattern."""
        return DiagonalFactor(self.values * H.values)

    def curvature_covariance(self, hess: Float[Array, " d"]) -> "DiagonalFactor":
        """Return `hess F` on the pattern, from the diagonal of the Hessian: F1 of Theorem 2."""
        return DiagonalFactor(hess * self.values)

    def curvature_precision(self, hess: Float[Array, " d"]) -> "DiagonalFactor":
        """Return `-Sigma hess F^-T` on the pattern, from the diagonal of the Hessian: F2 of Theorem 2."""
        return DiagonalFactor(-hess / self.values**3)
