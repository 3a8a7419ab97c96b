"""The skeleton of a new term: exponential priors of sds whose logarithms are shared coordinates.

s ~ Exponential(rate) for x = log s has log p(x) = log rate + x - rate e^x, Jacobian included, and under a Gaussian
E e^x = exp(m + v / 2): closed. Copy it to src/natvi/target/priors/, rename it, and write your function into it.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.linalg import ArrowMatrix, ArrowVector
from natvi.target import Expected
from natvi.target.term import Marginals


class ExponentialSds(eqx.Module):
    """sum_k log rate_k + x_k - rate_k e^{x_k} over shared coordinates x from `start` on."""

    rate: Float[Array, " k"]
    start: int = eqx.field(static=True, default=0)

    @property
    def own(self) -> slice:
        """Where the coordinates lie among the shared ones."""
        return slice(self.start, self.start + self.rate.shape[0])

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point, all constants included."""
        x = theta.shared[self.own]
        return jnp.sum(jnp.log(self.rate) + x - self.rate * jnp.exp(x))

    def expected(self, gaussian: Marginals) -> Expected:
        """Return the expectation with E grad and E hess, the shared parts for the term's own coordinates only."""
        (r, n), k = gaussian.mean.local.shape, self.rate.shape[0]
        mean, variance = gaussian.mean.shared[self.own], gaussian.shared_variances()[self.own]
        # E e^x = e^{m + v/2}
        grown = self.rate * jnp.exp(mean + 0.5 * variance)
        return Expected(
            jnp.sum(jnp.log(self.rate) + mean - grown),
            ArrowVector(jnp.zeros((r, n)), 1.0 - grown),
            ArrowMatrix(jnp.zeros((r, r, n)), jnp.zeros((k, r, n)), -jnp.diag(grown)),
        )
