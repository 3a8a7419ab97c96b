"""Hessians of a log-density on a factor's pattern, by automatic differentiation.

A hierarchical target knows its own Hessian: the expectation of E hess under a point mass is the Hessian at the point,
group by group, in time linear in the number of groups. A plain function pays one Hessian-vector product per
coordinate.
"""

import jax
import jax.numpy as jnp

from natvi.linalg import ArrowFactor, BlockFactor, DiagonalFactor
from natvi.target.point_mass import PointMass
from natvi.target.term import SumOfTerms
from natvi.typing import Factor, Hessian, LogDensity, Vector


def hessian_on_pattern(log_density: LogDensity, theta: Vector, factor: Factor) -> Hessian:
    """Return the entries of the Hessian at theta that the factor's gradient reads."""
    if isinstance(factor, ArrowFactor):
        target = getattr(log_density, "__self__", None)
        if not isinstance(target, SumOfTerms):
            raise ValueError(
                "Second-order estimates on the arrow need a target made of terms: pass the method `target.value` of a "
                "SumOfTerms, or use first-order estimates."
            )
        return target.expected(PointMass(theta)).hess
    hess = jax.hessian(log_density)(theta)
    if isinstance(factor, DiagonalFactor):
        return jnp.diagonal(hess)
    if isinstance(factor, BlockFactor):
        return tuple(hess[i[:, None], i[None]] for i in factor.layout.indices)
    return hess
