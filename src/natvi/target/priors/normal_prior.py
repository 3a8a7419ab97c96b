"""Independent normal priors on the shared coordinates."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.linalg import ArrowMatrix, ArrowVector
from natvi.target.expected import Expected
from natvi.target.term import SharedMarginals


class NormalPrior(eqx.Module):
    """theta_g ~ N(mean, diag(sd^2)), constants included (paper, Section 8: mean 0, sd 10).

    A coordinate whose sd is infinite has no prior here: it has one of its own, in another term, or a flat one.
    """

    mean: Float[Array, " g"]
    sd: Float[Array, " g"]
    start: int = eqx.field(static=True, default=0)

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return self._log_density((theta.shared - self.mean) ** 2)

    def expected(self, gaussian: SharedMarginals) -> Expected:
        """Return the closed-form expectation: E (x - m0)^2 = (m - m0)^2 + v."""
        (r, n), g = gaussian.mean.local.shape, self.mean.shape[0]
        error = gaussian.mean.shared - self.mean
        grad = ArrowVector(jnp.zeros((r, n)), -error / self.sd**2)
        hess = ArrowMatrix(jnp.zeros((r, r, n)), jnp.zeros((g, r, n)), -jnp.diag(self.sd**-2.0))
        return Expected(self._log_density(error**2 + gaussian.shared_variances()), grad, hess)

    def _log_density(self, squared: Float[Array, " g"]) -> Float[Array, ""]:
        each = 0.5 * jnp.log(2 * jnp.pi) + jnp.log(self.sd) + 0.5 * squared / self.sd**2
        return -jnp.sum(jnp.where(jnp.isinf(self.sd), 0.0, each))
