"""N(mu, (T T')^-1): the mean and the Cholesky factor of the precision, on any closed pattern (dense, arrow)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.gaussian.arrow_precision import ArrowPrecision
from natvi.linalg import ArrowFactor, vector
from natvi.typing import Hessian, Vector

PrecisionFactor = Any  # DenseFactor or ArrowFactor


class PrecisionGaussian(eqx.Module):
    """theta = mu + T^-T z with z standard normal."""

    mean: Vector
    factor: PrecisionFactor

    def push(self, z: Vector) -> Vector:
        """Return theta = mu + T^-T z."""
        return vector.add(self.mean, self.factor.solve_transposed(z))

    def pull(self, theta: Vector) -> Vector:
        """Return z = T' (theta - mu)."""
        return self.factor.transposed_product(vector.add(theta, self.mean, -1.0))

    def score(self, z: Vector) -> Vector:
        """Return grad log q at theta = push(z), which is -T z."""
        return jax.tree.map(jnp.negative, self.factor.product(z))

    def sample(self, key: PRNGKeyArray) -> Vector:
        """Draw one theta."""
        return self.push(vector.standard_normal(key, self.mean))

    def log_prob(self, theta: Vector) -> Float[Array, ""]:
        """Return log q(theta)."""
        return self.log_prob_at(self.pull(theta))

    def log_prob_at(self, z: Vector) -> Float[Array, ""]:
        """Return log q at theta = push(z), which needs no solve."""
        d = vector.length(self.mean)
        return -0.5 * d * jnp.log(2 * jnp.pi) + self.factor.log_determinant() - 0.5 * vector.dot(z, z)

    def entropy(self) -> Float[Array, ""]:
        """Return -E log q = (d/2)(1 + log 2 pi) - log |T|."""
        return 0.5 * vector.length(self.mean) * (1 + jnp.log(2 * jnp.pi)) - self.factor.log_determinant()

    def covariance_product(self, x: Vector) -> Vector:
        """Return Sigma x."""
        return self.factor.solve_transposed(self.factor.solve(x))

    def marginal_sds(self) -> Vector:
        """Return the standard deviation of every coordinate."""
        if isinstance(self.factor, ArrowFactor):
            return ArrowPrecision.from_factor(self.mean, self.factor).marginal_sds()
        return jnp.sqrt(self.row_variances(jnp.eye(vector.length(self.mean))))

    def row_variances(self, rows: Float[Array, "k d"]) -> Float[Array, " k"]:
        """Return Var(a' theta) = |T^-1 a|^2 for every row a of a design, the factor being dense.

        The rows of a mixed model belong to groups: `ArrowPrecision.row_moments`.
        """
        return jnp.sum(jax.vmap(self.factor.solve)(rows) ** 2, axis=1)

    def first_order(self, z: Vector, grad: Vector) -> PrecisionFactor:
        """Return G2 = -(theta - mu) v' on the pattern with v = T^-1 grad h (Theorem 2), a gradient in T."""
        move = self.factor.solve_transposed(z)
        return jax.tree.map(jnp.negative, self.factor.outer(move, self.factor.solve(grad)))

    def second_order(self, hess: Hessian) -> PrecisionFactor:
        """Return F2 = -Sigma hess T^-T on the pattern (Theorem 2), a gradient in T."""
        return self.factor.curvature_precision(hess)

    def entropy_gradient(self) -> PrecisionFactor:
        """Return the gradient of the entropy in T: -T^-T on the pattern, which is -1/T_ii on the diagonal."""
        zero = jax.tree.map(jnp.zeros_like, self.factor)
        return zero.with_diagonal(jax.tree.map(lambda t: -1.0 / t, self.factor.diagonal()))
