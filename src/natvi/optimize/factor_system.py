"""The system of any structure: the ascent on mean and factor, by what every closed pattern brings along.

x = (mu, F) and G(x) = (mu + Sigma E grad, F + F K) with K = half(F' grad_F L): the natural gradient of Table 1, columns
(mu, C) and (mu, T) in a step of size one. Near the optimum it converges as fast as the mean does; for structures whose
precision stays on their pattern, the systems in natural parameters (`arrow_system`, `fixed_point`) take fewer steps.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from natvi.derivatives.exact import ExactTarget, exact_order
from natvi.gaussian.factored import FactoredGaussian
from natvi.linalg import vector
from natvi.optimize.rule import replace
from natvi.optimize.system import Evaluated, Packed


class FactorSystem(eqx.Module):
    """A target that knows its expectations, and a Gaussian of the structure to be climbed with.

    Attributes:
        target: The log-density, with `expected(gaussian)`.
        like: Any Gaussian of the structure: its shapes and its kind of factor, C or T.

    Example:
        >>> from natvi.families.table import FAMILIES
        >>> from natvi.gaussian import diagonal_covariance
        >>> from natvi.run import climb
        >>> from natvi.target.design_rows import DesignRows, Observations
        >>> from natvi.target.priors.independent_normal import IndependentNormal
        >>> rows = Observations(jnp.ones((4, 1)), jnp.array([1.0, 0.0, 2.0, 1.0]))
        >>> target = DesignRows(rows, IndependentNormal.around_zero(1), FAMILIES["poisson"], 4)
        >>> start = diagonal_covariance(jnp.zeros(1))
        >>> climb(FactorSystem(target, start), start, tolerance=1e-6).outcome.value
        'converged'
    """

    target: ExactTarget
    like: Any
    memory: ClassVar[int] = 8
    whole_residual: ClassVar[bool] = True
    compiles_quickly: ClassVar[bool] = True

    def start(self, start: FactoredGaussian) -> Packed:
        """Lay a Gaussian into one array."""
        return Packed(jnp.zeros((0, 0)), _laid_out(start.mean, start.factor))

    def gaussian(self, x: Packed) -> Any:
        """Return the Gaussian at x."""
        # shapes alone are asked of `like`
        _, back = ravel_pytree((self.like.mean, self.like.factor))
        return replace(self.like, *back(x.shared))

    def evaluate(self, x: Packed) -> Evaluated:
        """Return x, G(x), the residual and the bound.

        The residual is the step in the Fisher metric: the whitened gradient, and K with its diagonal times sqrt 2, so
        that half its square is the rise that is left.
        """
        q = self.gaussian(x)
        bound, grad, factor_gradient = exact_order(self.target, q)
        K = q.factor.half_transposed_product(factor_gradient)
        white = q.whiten(grad)
        G = _laid_out(vector.add(q.mean, q.unwhiten(white)), jax.tree.map(jnp.add, q.factor, q.factor.multiply(K)))
        doubled = K.with_diagonal(jax.tree.map(lambda k: jnp.sqrt(2.0) * k, K.diagonal()))
        return Evaluated(x, Packed(x.local, G), Packed(x.local, _laid_out(white, doubled)), bound)


def _laid_out(mean: Any, factor: Any) -> Any:
    return ravel_pytree((mean, factor))[0]
