"""Hessians of a log-density on a factor's pattern, by automatic differentiation.

A hierarchical target knows its own Hessian, group by group, in time linear in the number of groups. A plain function
pays one Hessian-vector product per coordinate, and the pattern is cut out of the dense matrix.
"""

import jax
import jax.numpy as jnp

from natvi.linalg import ArrowFactor, BlockFactor, DiagonalFactor
from natvi.target.term import SumOfTerms
from natvi.typing import Factor, Hessian, Target, Vector


def hessian_on_pattern(target: Target, theta: Vector, factor: Factor) -> Hessian:
    """Return the entries of the Hessian at theta that the factor's gradient reads."""
    if isinstance(factor, ArrowFactor):
        if not isinstance(target, SumOfTerms):
            raise ValueError(
                "Second-order estimates on the arrow need a target made of terms (SumOfTerms), whose Hessian is known "
                f"group by group; got {type(target).__name__}. Use first-order estimates (order=1) instead."
            )
        return target.hessian(theta)
    hess = jax.hessian(target.value)(theta)
    if isinstance(factor, DiagonalFactor):
        return jnp.diagonal(hess)
    if isinstance(factor, BlockFactor):
        return tuple(hess[i[:, None], i[None]] for i in factor.layout.indices)
    return hess
