"""N(mu, C C'): the mean and the Cholesky factor of the covariance, on any closed pattern (diagonal, dense, blocks)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.linalg import DiagonalFactor, vector
from natvi.typing import Hessian, Vector

CovarianceFactor = Any  # DiagonalFactor, DenseFactor, PatternFactor, BlockFactor or LocalGlobalFactor


class CovarianceGaussian(eqx.Module):
    """theta = mu + C z with z standard normal."""

    mean: Vector
    factor: CovarianceFactor

    def push(self, z: Vector) -> Vector:
        """Return theta = mu + C z."""
        return vector.add(self.mean, self.factor.product(z))

    def pull(self, theta: Vector) -> Vector:
        """Return z = C^-1 (theta - mu)."""
        return self.factor.solve(vector.add(theta, self.mean, -1.0))

    def score(self, z: Vector) -> Vector:
        """Return grad log q at theta = push(z), which is -C^-T z."""
        return jax.tree.map(jnp.negative, self.factor.solve_transposed(z))

    def sample(self, key: PRNGKeyArray) -> Vector:
        """Draw one theta."""
        return self.push(vector.standard_normal(key, self.mean))

    def log_prob(self, theta: Vector) -> Float[Array, ""]:
        """Return log q(theta)."""
        return self.log_prob_at(self.pull(theta))

    def log_prob_at(self, z: Vector) -> Float[Array, ""]:
        """Return log q at theta = push(z), which needs no solve."""
        d = vector.length(self.mean)
        return -0.5 * d * jnp.log(2 * jnp.pi) - self.factor.log_determinant() - 0.5 * vector.dot(z, z)

    def entropy(self) -> Float[Array, ""]:
        """Return -E log q = (d/2)(1 + log 2 pi) + log |C|."""
        return 0.5 * vector.length(self.mean) * (1 + jnp.log(2 * jnp.pi)) + self.factor.log_determinant()

    def covariance_product(self, x: Vector) -> Vector:
        """Return Sigma x."""
        return self.factor.product(self.factor.transposed_product(x))

    def marginal_sds(self) -> Vector:
        """Return the standard deviation of every coordinate: the norms of C's rows."""
        return self.factor.row_norms()

    def row_variances(self, rows: Float[Array, "k d"]) -> Float[Array, " k"]:
        """Return Var(a' theta) = |C' a|^2 for every row a of a design."""
        if isinstance(self.factor, DiagonalFactor):
            return rows**2 @ self.factor.values**2
        return jnp.sum(jax.vmap(self.factor.transposed_product)(rows) ** 2, axis=1)

    def first_order(self, z: Vector, grad: Vector) -> CovarianceFactor:
        """Return G1 = grad h z' on the pattern (Theorem 2), an unbiased gradient in C."""
        return self.factor.outer(grad, z)

    def second_order(self, hess: Hessian) -> CovarianceFactor:
        """Return F1 = hess C on the pattern (Theorem 2), an unbiased gradient in C."""
        return self.factor.curvature_covariance(hess)

    def entropy_gradient(self) -> CovarianceFactor:
        """Return the gradient of the entropy in C: C^-T on the pattern, which is 1/C_ii on the diagonal."""
        zero = jax.tree.map(jnp.zeros_like, self.factor)
        return zero.with_diagonal(jax.tree.map(lambda c: 1.0 / c, self.factor.diagonal()))
