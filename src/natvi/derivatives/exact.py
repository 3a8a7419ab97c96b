"""Exact derivatives of the lower bound: no sampling noise at all.

L = E_q log p(y, theta) + H(q). For a sum of terms with closed or one-dimensional expectations, the bound,
grad_mu L = E grad log p (Bonnet) and 2 grad_Sigma E log p = E hess log p (Price) are available exactly; the
entropy adds Sigma^-1 to the latter.
"""

from typing import NamedTuple

from jaxtyping import Array, Float

from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowMatrix, ArrowVector
from natvi.target import SumOfTerms


class Derivatives(NamedTuple):
    """The bound, E grad log p and E hess log p, the latter on the pattern."""

    elbo: Float[Array, ""]
    grad: ArrowVector
    hess: ArrowMatrix


def exact_derivatives(target: SumOfTerms, gaussian: ArrowPrecision) -> Derivatives:
    """Return the exact lower bound with its derivatives."""
    value, grad, hess = target.expected(gaussian)
    return Derivatives(value + gaussian.entropy(), grad, hess)
