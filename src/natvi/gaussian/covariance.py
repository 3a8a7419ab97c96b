"""N(mu, C C'): the mean and the Cholesky factor of the covariance, on any closed pattern (diagonal, dense, blocks)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.gaussian.factored import FactoredGaussian
from natvi.linalg import vector
from natvi.typing import Hessian, Vector


class CovarianceGaussian(FactoredGaussian):
    """theta = mu + C z with z standard normal."""

    mean: Vector
    factor: Any  # a Factor; not the arrow, whose square has entries off the pattern's inverse
    entropy_sign: ClassVar[float] = 1.0

    def move(self, z: Vector) -> Vector:
        """Return theta - mu = C z."""
        return self.factor.product(z)

    def pull(self, theta: Vector) -> Vector:
        """Return z = C^-1 (theta - mu)."""
        return self.factor.solve(vector.add(theta, self.mean, -1.0))

    def score(self, z: Vector) -> Vector:
        """Return grad log q at theta = push(z), which is -C^-T z."""
        return jax.tree.map(jnp.negative, self.factor.solve_transposed(z))

    def whiten(self, grad: Vector) -> Vector:
        """Return C' g."""
        return self.factor.transposed_product(grad)

    def unwhiten(self, white: Vector) -> Vector:
        """Return C u."""
        return self.factor.product(white)

    def marginal_sds(self) -> Vector:
        """Return the standard deviation of every coordinate: the norms of C's rows."""
        return self.factor.row_norms()

    def row_variances(self, rows: Float[Array, "k d"]) -> Float[Array, " k"]:
        """Return Var(a' theta) = |C' a|^2 for every row a of a design."""
        return jnp.sum(jax.vmap(self.factor.transposed_product)(rows) ** 2, axis=1)

    def precision(self) -> Hessian:
        """Return Sigma^-1 = (C C')^-1 on the pattern."""
        return self.factor.inverse_square()

    def with_precision(self, precision: Hessian) -> "CovarianceGaussian":
        """Return the Gaussian of this mean with another precision."""
        return CovarianceGaussian(self.mean, self.factor.inverse_root_of(precision))

    def first_order(self, z: Vector, grad: Vector) -> Any:
        """Return G1 = grad h z' on the pattern (Theorem 2), an unbiased gradient in C."""
        return self.factor.outer(grad, z)

    def second_order(self, hess: Hessian) -> Any:
        """Return F1 = hess C on the pattern (Theorem 2), an unbiased gradient in C."""
        return self.factor.curvature_covariance(hess)

    def natural_outer(self, white: Vector, z: Vector) -> Any:
        """Return C half(u z') with u = C' g, the natural direction that belongs to G1 = g z'."""
        return self.factor.multiply_half_outer(white, z)

    def moved_mean(self, factor: Any, grad: Vector, direction: Vector) -> Vector:
        """Return Sigma g: the mean does not wait for the new C."""
        return direction
