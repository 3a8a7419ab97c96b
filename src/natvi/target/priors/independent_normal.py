"""Independent normal priors on a flat vector."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.target.flat import FlatMarginals, PriorExpectation


class IndependentNormal(eqx.Module):
    """theta ~ N(mean, diag(sd^2)), constants included (paper, Section 8: mean 0, sd 10).

    A coordinate of infinite sd, which is a precision of zero, has a flat prior: it adds nothing to value, gradient and
    precision.
    """

    mean: Float[Array, " d"]
    sd: Float[Array, " d"]

    @classmethod
    def around_zero(cls, d: int, sd: float = 10.0) -> "IndependentNormal":
        """Return the paper's prior N(0, sd^2 I)."""
        if not sd > 0:
            raise ValueError(f"The sd of a prior must be positive; got {sd!r}.")
        return cls(jnp.zeros(d), jnp.full(d, sd))

    @property
    def precision(self) -> Float[Array, " d"]:
        """The diagonal of minus the Hessian."""
        return self.sd**-2.0

    def gradient(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the gradient of the log-density."""
        return -(theta - self.mean) * self.precision

    def precision_at(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the diagonal of minus the Hessian at one point: the same everywhere."""
        return self.precision

    def expected(self, gaussian: FlatMarginals) -> PriorExpectation:
        """Return E log p with E grad and minus E hess, exactly."""
        value = self.expected_value(gaussian.mean, gaussian.marginal_sds() ** 2)
        return PriorExpectation(value, self.gradient(gaussian.mean), self.precision)

    def value(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return self.expected_value(theta, jnp.zeros_like(theta))

    def expected_value(self, mean: Float[Array, " d"], variances: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the expected log-density: E (x - m0)^2 = (m - m0)^2 + v."""
        squared = ((mean - self.mean) ** 2 + variances) * self.precision
        constant = 0.5 * math.log(2 * math.pi) + jnp.log(self.sd)
        return -jnp.sum(jnp.where(jnp.isinf(self.sd), 0.0, constant + 0.5 * squared))
