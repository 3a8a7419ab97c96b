"""Gradients example by example, for the generalized Gauss-Newton curvature of VOGN (supplement S5).

Its "GGN" is the empirical Fisher information sum_i g_i g_i' of the examples' gradients g_i, laid on the pattern.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.derivatives.exact import ExactTarget, exact_derivatives
from natvi.derivatives.first_order import average_draws
from natvi.linalg import (
    ArrowFactor,
    ArrowMatrix,
    ArrowVector,
    BlockFactor,
    DiagonalFactor,
    LocalGlobalFactor,
    LocalGlobalMatrix,
)
from natvi.target.rows import RowTarget, scale_up
from natvi.target.rvb import ReparametrizedEffects
from natvi.typing import Factor, Gaussian, Hessian, Target, Vector


class CurvatureGradient(NamedTuple):
    """An estimate of the bound, of the gradient of E log p in the mean, and of -E hess log p on the pattern."""

    elbo: Float[Array, ""]
    mean: Vector
    curvature: Hessian


@runtime_checkable
class TargetOfGroups(Protocol):
    """A log-density on the arrow with each group's gradient (SumOfTerms, GroupTarget)."""

    def value(self, theta: Vector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        ...

    def group_gradients(self, theta: Vector) -> ArrowVector:
        """Return each group's gradient, local `(r, n)` and shared `(g, n)`; summed over groups, the gradient."""
        ...


def gauss_newton(gradients: Float[Array, "k d"], factor: Factor) -> Hessian:
    """Return sum_i g_i g_i' on the factor's pattern.

    Example:
        >>> import jax.numpy as jnp
        >>> from natvi.linalg import DiagonalFactor
        >>> gauss_newton(jnp.array([[1.0, 2.0], [3.0, 0.0]]), DiagonalFactor.identity(2)).tolist()
        [10.0, 4.0]
    """
    if isinstance(factor, DiagonalFactor):
        return jnp.sum(gradients**2, axis=0)
    if isinstance(factor, BlockFactor):
        pieces = (gradients[:, i] for i in factor.layout.indices)
        return tuple(jnp.einsum("sik,sjk->ijk", piece, piece) for piece in pieces)
    return gradients.T @ gradients


def gauss_newton_arrow(gradients: ArrowVector) -> ArrowMatrix:
    """Return J' J on the arrow from each group's gradient: local `(r, n)`, and shared `(g, n)` group by group."""
    local, shared = gradients
    return ArrowMatrix(
        local[:, None] * local[None], shared[:, None] * local[None], jnp.einsum("gn,hn->gh", shared, shared)
    )


def gauss_newton_blocks(gradients: ArrowVector) -> LocalGlobalMatrix:
    """Return the local and shared blocks of J' J from each group's gradient."""
    local, shared = gradients
    return LocalGlobalMatrix(local[:, None] * local[None], shared @ shared.T)


def add_to_diagonal(curvature: Hessian, amounts: Float[Array, " d"], factor: Factor) -> Hessian:
    """Add a diagonal matrix to a curvature on a diagonal, dense or block pattern."""
    if isinstance(factor, DiagonalFactor):
        return curvature + amounts
    if isinstance(factor, BlockFactor):
        pieces = (amounts[i] for i in factor.layout.indices)
        return tuple(
            stack + jnp.eye(len(stack))[..., None] * piece[:, None]
            for stack, piece in zip(curvature, pieces, strict=True)
        )
    return curvature + jnp.diag(amounts)


def curvature_at(target: Target, gaussian: Gaussian, z: Vector) -> CurvatureGradient:
    """Return VOGN's estimates from one draw theta = push(z).

    Rows:  g = (n/k) sum_i g_i + grad log p(theta) at mu,  H = (n/k) sum_i g_i g_i' + prior precision, over k rows.
    Groups:  g = grad log p(y, theta),  H = J' J on the arrow, J being the groups' gradients; RVB: its blocks.
    """
    theta = gaussian.push(z)
    if isinstance(target, ReparametrizedEffects):
        value, gradients = target.value_and_group_gradients(theta)
        mean = ArrowVector(gradients.local, jnp.sum(gradients.shared, axis=1))
        return CurvatureGradient(value - gaussian.log_prob_at(z), mean, gauss_newton_blocks(gradients))
    elbo = target.value(theta) - gaussian.log_prob(theta)
    if isinstance(target, TargetOfGroups):
        gradients = target.group_gradients(theta)
        mean = ArrowVector(gradients.local, jnp.sum(gradients.shared, axis=1))
        in_blocks = isinstance(gaussian.factor, LocalGlobalFactor)
        return CurvatureGradient(elbo, mean, (gauss_newton_blocks if in_blocks else gauss_newton_arrow)(gradients))
    if not isinstance(target, RowTarget) or isinstance(gaussian.factor, ArrowFactor):
        raise ValueError(
            "VOGN needs each row's gradient, of a target of rows (DesignRows, FunctionRows) with a diagonal, dense or "
            "block factor, or each group's, of a mixed model (SumOfTerms) or a GroupTarget with the arrow; got "
            f"{type(target).__name__} with {type(gaussian.factor).__name__}."
        )
    gradients = target.row_gradients(theta)
    scale = scale_up(target.num_rows, gradients.shape[0])
    curvature = jax.tree.map(lambda h: scale * h, gauss_newton(gradients, gaussian.factor))
    return CurvatureGradient(
        elbo,
        scale * jnp.sum(gradients, axis=0) + target.prior.gradient(gaussian.mean),
        add_to_diagonal(curvature, target.prior.precision_at(gaussian.mean), gaussian.factor),
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
