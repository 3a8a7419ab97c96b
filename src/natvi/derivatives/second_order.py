"""Unbiased gradients of the bound from second derivatives of the log-density (Theorem 2: F1 and F2).

grad_C L = E hess h C and grad_T L = -Sigma E hess h T^-T with hess h = hess log p + Sigma^-1. Close to the optimum the
Hessian hardly varies, so these estimates have almost no noise, which is what large dense factors need. The same
formulas turn exact expectations E grad and E hess into gradients of the factor.
"""

from typing import Any

from jaxtyping import PRNGKeyArray

from natvi.derivatives.first_order import BoundGradient, average_draws, integrand_at
from natvi.derivatives.hessians import hessian_on_pattern
from natvi.linalg import vector
from natvi.typing import Gaussian, Hessian, Target, Vector


def factor_gradient(gaussian: Gaussian, hess: Hessian, entropy: bool = True) -> Any:
    """Return the gradient in the factor from (an estimate of) E hess log p on the pattern."""
    gradient = gaussian.second_order(hess)
    return vector.add(gradient, gaussian.entropy_gradient()) if entropy else gradient


def second_order_at(target: Target, gaussian: Gaussian, z: Vector, entropy: bool = True) -> BoundGradient:
    """Return the estimate from one draw; without `entropy`, gradients of E log p alone."""
    theta, value, grad = integrand_at(target, gaussian, z, entropy)
    hess = hessian_on_pattern(target, theta, gaussian.factor)
    return BoundGradient(value, grad, factor_gradient(gaussian, hess, entropy))


def second_order(
    target: Target,
    gaussian: Gaussian,
    key: PRNGKeyArray,
    num_samples: int = 1,
    antithetic: bool = False,
    entropy: bool = True,
) -> BoundGradient:
    """Return the average of the estimates from several draws; arguments as for `first_order`."""
    return average_draws(
        lambda z: second_order_at(target, gaussian, z, entropy), key, gaussian, num_samples, antithetic
    )
