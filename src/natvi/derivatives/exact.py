"""Exact derivatives of the lower bound: no sampling noise at all.

L = E_q log p(y, theta) + H(q). For a sum of terms with closed or one-dimensional expectations, the bound,
grad_mu L = E grad log p (Bonnet) and 2 grad_Sigma E log p = E hess log p (Price) are available exactly; the
entropy adds Sigma^-1 to the latter.
"""

from typing import Any, Protocol, runtime_checkable

from natvi.derivatives.first_order import BoundGradient
from natvi.derivatives.second_order import factor_gradient
from natvi.target import Expected
from natvi.typing import Gaussian


@runtime_checkable
class ExactTarget(Protocol):
    """A log-density whose expectations under a Gaussian are known."""

    def expected(self, gaussian: Any) -> Expected:
        """Return E log-density, E grad and E hess on the pattern."""
        ...


def exact_derivatives(target: ExactTarget, gaussian: Any) -> Expected:
    """Return the exact lower bound as `value`, with E grad log p and E hess log p."""
    found = target.expected(gaussian)
    return found._replace(value=found.value + gaussian.entropy())


def exact_order(target: ExactTarget, gaussian: Gaussian, entropy: bool = True) -> BoundGradient:
    """Return the exact gradients in mean and factor, in the form that update rules take; `elbo` is the bound."""
    elbo, grad, hess = exact_derivatives(target, gaussian)
    return BoundGradient(elbo, grad, factor_gradient(gaussian, hess, entropy))
