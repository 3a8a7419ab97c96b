"""N(mu, (T T')^-1): the mean and the Cholesky factor of the precision, on any closed pattern (dense, arrow)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.gaussian.arrow_precision import ArrowPrecision
from natvi.gaussian.factored import FactoredGaussian
from natvi.linalg import vector
from natvi.typing import Hessian, Vector


class PrecisionGaussian(FactoredGaussian):
    """theta = mu + T^-T z with z standard normal."""

    mean: Vector
    factor: Any  # a Factor
    entropy_sign: ClassVar[float] = -1.0

    def move(self, z: Vector) -> Vector:
        """Return theta - mu = T^-T z."""
        return self.factor.solve_transposed(z)

    def pull(self, theta: Vector) -> Vector:
        """Return z = T' (theta - mu)."""
        return self.factor.transposed_product(vector.add(theta, self.mean, -1.0))

    def score(self, z: Vector) -> Vector:
        """Return grad log q at theta = push(z), which is -T z."""
        return jax.tree.map(jnp.negative, self.factor.product(z))

    def whiten(self, grad: Vector) -> Vector:
        """Return T^-1 g."""
        return self.factor.solve(grad)

    def unwhiten(self, white: Vector) -> Vector:
        """Return T^-T v."""
        return self.factor.solve_transposed(white)

    def marginal_sds(self) -> Vector:
        """Return the standard deviation of every coordinate: the norms of the columns of T^-1."""
        return self.factor.inverse_column_norms()

    def row_variances(self, rows: Float[Array, "k d"]) -> Float[Array, " k"]:
        """Return Var(a' theta) = |T^-1 a|^2 for every row a of a design.

        The rows of a mixed model belong to groups: `marginals().row_moments`.
        """
        return jnp.sum(jax.vmap(self.factor.solve)(rows) ** 2, axis=1)

    def marginals(self) -> ArrowPrecision:
        """Return what a target with groups asks of a Gaussian on the arrow, with T_g inverted once for all of it."""
        return ArrowPrecision.from_factor(self.mean, self.factor)

    def precision(self) -> Hessian:
        """Return Sigma^-1 = T T' on the pattern."""
        return self.factor.square()

    def with_precision(self, precision: Hessian) -> "PrecisionGaussian":
        """Return the Gaussian of this mean with another precision."""
        return PrecisionGaussian(self.mean, self.factor.root_of(precision))

    def first_order(self, z: Vector, grad: Vector) -> Any:
        """Return G2 = -(theta - mu) v' on the pattern with v = T^-1 grad h (Theorem 2), a gradient in T."""
        return jax.tree.map(jnp.negative, self.factor.outer(self.move(z), self.factor.solve(grad)))

    def second_order(self, hess: Hessian) -> Any:
        """Return F2 = -Sigma hess T^-T on the pattern (Theorem 2), a gradient in T."""
        return self.factor.curvature_precision(hess)

    def natural_outer(self, white: Vector, z: Vector) -> Any:
        """Return -T half(z v') with v = T^-1 g, the natural direction that belongs to G2 = -(T^-T z) v'."""
        return jax.tree.map(jnp.negative, self.factor.multiply_half_outer(z, white))

    def moved_mean(self, factor: Any, grad: Vector, direction: Vector) -> Vector:
        """Return T_new^-T T_old^-1 g, which uses the updated T (Corollary 1)."""
        return factor.solve_transposed(self.factor.solve(grad))
