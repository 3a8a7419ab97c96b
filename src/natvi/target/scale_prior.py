"""The prior of one positive parameter that the target holds by its logarithm: a dispersion, or a lone sd."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg import ArrowMatrix, ArrowVector
from natvi.target.scale_density import ScaleDensity, scale_log_density
from natvi.target.term import Contribution, Marginals

NODES = 64


class ScalePrior(eqx.Module):
    """The prior of x = exp(sign theta_k), as a density of the shared coordinate theta_k.

    log p(theta_k) = log p_x(x) + log x: the last summand is the log-Jacobian. The random effects' omega_kk is minus a
    log sd (sign -1), a log dispersion is itself (sign 1).
    """

    parameters: Float[Array, " k"] = eqx.field(converter=jnp.asarray)
    name: str = eqx.field(static=True)
    start: int = eqx.field(static=True)
    sign: int = eqx.field(static=True)

    @classmethod
    def of(cls, density: ScaleDensity, start: int, sign: int) -> "ScalePrior":
        """Build the term from a density of x."""
        return cls(jnp.asarray(density.parameters), density.name, start, sign)

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return self._log_density(theta.shared[self.start])

    def expected(self, gaussian: Marginals) -> Contribution:
        """Return the expectation by Gauss-Hermite quadrature; derivatives in the mean give E grad and E hess."""
        r, n = gaussian.mean.local.shape
        sd = jnp.sqrt(gaussian.shared_variances()[self.start])
        x, w = np.polynomial.hermite_e.hermegauss(NODES)
        nodes, weights = jnp.asarray(x), jnp.asarray(w / np.sqrt(2 * np.pi))

        def total(mean: Float[Array, ""]) -> Float[Array, ""]:
            return weights @ self._log_density(mean + sd * nodes)

        mean = gaussian.mean.shared[self.start]
        grad, hess = jax.grad(total)(mean), jax.grad(jax.grad(total))(mean)
        return Contribution(
            total(mean),
            ArrowVector(jnp.zeros((r, n)), grad[None]),
            ArrowMatrix(jnp.zeros((r, r, n)), jnp.zeros((1, r, n)), hess[None, None]),
        )

    def _log_density(self, coordinate: Float[Array, "*n"]) -> Float[Array, "*n"]:
        log_x = self.sign * coordinate
        return scale_log_density(self.name, log_x, self.parameters) + log_x
