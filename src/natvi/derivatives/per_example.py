"""Gradients example by example, for the generalized Gauss-Newton curvature of VOGN (supplement S5).

Its "GGN" is the empirical Fisher information sum_i g_i g_i' of the examples' gradients g_i, laid on the pattern.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.derivatives.exact import ExactTarget, exact_derivatives
from natvi.derivatives.first_order import average_draws
from natvi.linalg import ArrowVector, vector
from natvi.over_hosts import add_up
from natvi.target.rows import RowTarget
from natvi.typing import Gaussian, Hessian, Target, Vector


class CurvatureGradient(NamedTuple):
    """An estimate of the bound, of the gradient of E log p in the mean, and of -E hess log p on the pattern."""

    elbo: Float[Array, ""]
    mean: Vector
    curvature: Hessian


@runtime_checkable
class TargetOfGroups(Protocol):
    """A log-density with each group's gradient (SumOfTerms, GroupTarget, a reparametrized mixed model)."""

    def value_and_group_gradients(self, theta: Vector) -> tuple[Float[Array, ""], ArrowVector]:
        """Return the log-density and each group's gradient, local `(r, n)` and shared `(g, n)`.

        Summed over groups they are the gradient.
        """
        ...


def curvature_at(target: Target, gaussian: Gaussian, z: Vector) -> CurvatureGradient:
    """Return VOGN's estimates from one draw theta = push(z).

    Rows:  g = (n/k) sum_i g_i + grad log p(theta) at mu,  H = (n/k) sum_i g_i g_i' + prior precision, over k rows.
    Groups:  g = grad log p(y, theta),  H = J' J on the pattern, J being the groups' gradients.
    """
    theta, F = gaussian.push(z), gaussian.factor
    if isinstance(target, TargetOfGroups):
        value, gradients = target.value_and_group_gradients(theta)
        mean = ArrowVector(gradients.local, jnp.sum(gradients.shared, axis=1))
        return CurvatureGradient(value - gaussian.log_prob_at(z), mean, F.gram(gradients))
    if not isinstance(target, RowTarget) or not vector.is_flat(theta):
        raise ValueError(
            "VOGN needs each row's gradient, of a target of rows (DesignRows, FunctionRows) with a diagonal, dense or "
            "block factor, or each group's, of a mixed model (SumOfTerms) or a GroupTarget with the arrow; got "
            f"{type(target).__name__} with {type(gaussian.factor).__name__}."
        )
    gradients = target.row_gradients(theta)
    curvature = jax.tree.map(lambda h: target.scale * h, F.gram(gradients))
    mean, curvature = add_up((target.scale * jnp.sum(gradients, axis=0), curvature))
    return CurvatureGradient(
        target.value(theta) - gaussian.log_prob_at(z),
        mean + target.prior.gradient(gaussian.mean),
        F.add_diagonal(curvature, target.prior.precision_at(gaussian.mean)),
    )


def curvature_gradient(
    target: Target, gaussian: Gaussian, key: PRNGKeyArray, num_samples: int = 1, antithetic: bool = False
) -> CurvatureGradient:
    """Return the average of the estimates from several draws."""
    return average_draws(lambda z: curvature_at(target, gaussian, z), key, gaussian, num_samples, antithetic)


def exact_curvature(target: ExactTarget, gaussian: Gaussian) -> CurvatureGradient:
    """Return the exact expectations instead, as the paper does for the loglinear model."""
    elbo, grad, hess = exact_derivatives(target, gaussian)
    return CurvatureGradient(elbo, grad, jax.tree.map(jnp.negative, hess))
