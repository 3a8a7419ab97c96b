"""Hessians of a log-density on a factor's pattern.

A target made of rows, terms or groups knows its own Hessian, group by group where there are groups, in time linear in
the number of rows. A plain function pays one Hessian-vector product per coordinate by automatic differentiation, and
the pattern is cut out of the dense matrix.
"""

from typing import Protocol, runtime_checkable

import jax

from natvi.linalg import Formed, vector
from natvi.typing import Factor, Hessian, Target, Vector


@runtime_checkable
class CurvedTarget(Protocol):
    """A target that knows its Hessian."""

    def hessian(self, theta: Vector, factor: Factor) -> Hessian:
        """Return the entries of the Hessian at theta on the factor's pattern."""
        ...


def hessian_on_pattern(target: Target, theta: Vector, factor: Factor) -> Hessian:
    """Return the entries of the Hessian at theta that the factor's gradient reads."""
    if isinstance(target, CurvedTarget):
        return target.hessian(theta, factor)
    if not vector.is_flat(theta):
        raise ValueError(
            "Second-order estimates on the arrow need a target whose Hessian is known group by group: a GroupTarget "
            "of your own functions or a mixed model (SumOfTerms); those on local blocks take a GroupTarget or a "
            f"reparametrized mixed model (rvb1, rvb2). Got {type(target).__name__}: write it as a GroupTarget, or use "
            "first-order estimates (order=1)."
        )
    return factor.restrict(Formed(jax.hessian(target.value)(theta)))
