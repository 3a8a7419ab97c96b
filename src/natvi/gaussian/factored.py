"""A Gaussian by its mean and a lower triangular factor, of the covariance (C) or of the precision (T).

What the two kinds share is written once here, in terms of six things that each says for itself: where z leads (`move`)
and back (`pull`), what a gradient is in the coordinates z (`whiten`) and a direction in theta (`unwhiten`), and which
symmetric matrix the factor is a root of (`precision`, `with_precision`).
"""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.linalg import vector
from natvi.typing import Hessian, Vector


class FactoredGaussian(eqx.Module):
    """theta = mu + move(z) with z standard normal.

    The entropy is `entropy_sign` log |F| plus a constant: F may be C (sign 1) or T (sign -1).
    """

    mean: eqx.AbstractVar[Vector]
    factor: eqx.AbstractVar[Any]
    entropy_sign: ClassVar[float]

    @abstractmethod
    def move(self, z: Vector) -> Vector:
        """Return theta - mu."""

    @abstractmethod
    def pull(self, theta: Vector) -> Vector:
        """Return z from theta."""

    @abstractmethod
    def score(self, z: Vector) -> Vector:
        """Return grad log q at theta = push(z)."""

    @abstractmethod
    def whiten(self, grad: Vector) -> Vector:
        """Return the gradient in z of a function of theta."""

    @abstractmethod
    def unwhiten(self, white: Vector) -> Vector:
        """Return the direction in theta that belongs to one in z, so that Sigma g is a whitened gradient unwhitened."""

    @abstractmethod
    def moved_mean(self, factor: Any, grad: Vector, direction: Vector) -> Vector:
        """Return the mean's natural direction once the factor has moved; `direction` is Sigma g, before it moved."""

    @abstractmethod
    def natural_outer(self, white: Vector, z: Vector) -> Any:
        """Return the natural direction of the factor from one draw's whitened gradient, without a matrix product."""

    @abstractmethod
    def precision(self) -> Hessian:
        """Return Sigma^-1 on the factor's pattern."""

    @abstractmethod
    def with_precision(self, precision: Hessian) -> "FactoredGaussian":
        """Return the Gaussian of this mean with another precision, by the same kind of factor."""

    @abstractmethod
    def row_variances(self, rows: Float[Array, "k d"]) -> Float[Array, " k"]:
        """Return Var(a' theta) for every row a of a design."""

    def push(self, z: Vector) -> Vector:
        """Return theta = mu + move(z)."""
        return vector.add(self.mean, self.move(z))

    def sample(self, key: PRNGKeyArray) -> Vector:
        """Draw one theta."""
        return self.push(vector.standard_normal(key, self.mean))

    def log_prob(self, theta: Vector) -> Float[Array, ""]:
        """Return log q(theta)."""
        return self.log_prob_at(self.pull(theta))

    def log_prob_at(self, z: Vector) -> Float[Array, ""]:
        """Return log q at theta = push(z), which needs no solve."""
        d = vector.length(self.mean)
        return -0.5 * d * jnp.log(2 * jnp.pi) - self._log_volume() - 0.5 * vector.dot(z, z)

    def entropy(self) -> Float[Array, ""]:
        """Return -E log q = (d/2)(1 + log 2 pi) + log |Sigma| / 2."""
        return 0.5 * vector.length(self.mean) * (1 + jnp.log(2 * jnp.pi)) + self._log_volume()

    def entropy_gradient(self) -> Any:
        """Return the gradient of the entropy in the factor: sign F^-T on the pattern, sign/F_ii on the diagonal."""
        zero = jax.tree.map(jnp.zeros_like, self.factor)
        return zero.with_diagonal(jax.tree.map(lambda f: self.entropy_sign / f, self.factor.diagonal()))

    def covariance_product(self, x: Vector) -> Vector:
        """Return Sigma x."""
        return self.unwhiten(self.whiten(x))

    def _log_volume(self) -> Float[Array, ""]:
        """Return log |Sigma| / 2."""
        return self.entropy_sign * self.factor.log_determinant()
