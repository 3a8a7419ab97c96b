"""The prior of one positive parameter that the target holds by its logarithm: a dispersion, or a lone sd."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg import ArrowMatrix, ArrowVector
from natvi.target.expected import Expected
from natvi.target.priors.scale_density import ScaleDensity, scale_log_density
from natvi.target.term import SharedMarginals

NODES = 64


class ScalePrior(eqx.Module):
    """The prior of x = exp(power theta_k), as a density of the coordinate theta_k.

    log p(theta_k) = log p_x(x) + log x + log |power|: the last two are the log-Jacobian. The random effects' omega_kk
    is minus a log sd (power -1), a log dispersion is itself (power 1), and 1 / sqrt(phi) has the power -1/2 of phi.
    """

    parameters: Float[Array, " k"] = eqx.field(converter=jnp.asarray)
    name: str = eqx.field(static=True)
    start: int = eqx.field(static=True)
    power: float = eqx.field(static=True)

    @classmethod
    def of(cls, density: ScaleDensity, start: int, power: float) -> "ScalePrior":
        """Build the term from a density of x."""
        return cls(jax.device_put(np.asarray(density.parameters)), density.name, start, power)

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return self.at(theta.shared[self.start])

    def expected(self, gaussian: SharedMarginals) -> Expected:
        """Return the expectation with E grad and E hess."""
        r, n = gaussian.mean.local.shape
        mean, variance = gaussian.mean.shared[self.start], gaussian.shared_variances()[self.start]
        value, grad, hess = self.expected_at(mean, variance)
        return Expected(
            value,
            ArrowVector(jnp.zeros((r, n)), grad[None]),
            ArrowMatrix(jnp.zeros((r, r, n)), jnp.zeros((1, r, n)), hess[None, None]),
        )

    def expected_at(
        self, mean: Float[Array, ""], variance: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """Return the expectation by Gauss-Hermite quadrature; its derivatives in the mean are E grad and E hess."""
        x, w = np.polynomial.hermite_e.hermegauss(NODES)
        weights, at = jnp.asarray(w / np.sqrt(2 * np.pi)), mean + jnp.sqrt(variance) * x

        def slope(at: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
            return jax.jvp(self.at, (at,), (jnp.ones_like(at),))

        (value, grad), (_, hess) = jax.jvp(slope, (at,), (jnp.ones_like(at),))
        return weights @ value, weights @ grad, weights @ hess

    def density_of_scale(self, coordinate: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Return the log-density of x itself, without the Jacobian."""
        return scale_log_density(self.name, self.power * coordinate, self.parameters)

    def at(self, coordinate: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Return the log-density of the coordinate."""
        log_x = self.power * coordinate
        return scale_log_density(self.name, log_x, self.parameters) + log_x + np.log(abs(self.power))
