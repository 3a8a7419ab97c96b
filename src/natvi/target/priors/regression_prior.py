"""The prior of a regression: normals on the coefficients, and a density of its own for the dispersion."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.target.flat import FlatMarginals, FlatPrior, PriorExpectation
from natvi.target.priors.scale_prior import ScalePrior


class RegressionPrior(eqx.Module):
    """Normals, flat in the coordinate of `scale`, and the density of that coordinate."""

    normal: FlatPrior
    scale: ScalePrior

    @property
    def mean(self) -> Float[Array, " d"]:
        """Where the normals are centred."""
        return self.normal.mean

    @property
    def precision(self) -> Float[Array, " d"]:
        """The precisions of the normals."""
        return self.normal.precision

    def value(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return self.normal.value(theta) + self.scale.at(theta[self.scale.start])

    def gradient(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the gradient of the log-density."""
        return self.normal.gradient(theta).at[self.scale.start].add(self._at_point(theta)[1])

    def precision_at(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the diagonal of minus the Hessian at one point."""
        return self.normal.precision_at(theta).at[self.scale.start].add(-self._at_point(theta)[2])

    def expected(self, gaussian: FlatMarginals) -> PriorExpectation:
        """Return E log p with E grad and minus E hess: exact for the normals, by quadrature for the scale."""
        k, normal = self.scale.start, self.normal.expected(gaussian)
        value, grad, hess = self.scale.expected_at(gaussian.mean[k], gaussian.marginal_sds()[k] ** 2)
        at: Any = (k,) * normal.precision.ndim
        return PriorExpectation(normal.value + value, normal.grad.at[k].add(grad), normal.precision.at[at].add(-hess))

    def _at_point(self, theta: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        return self.scale.expected_at(theta[self.scale.start], jnp.zeros((), theta.dtype))
