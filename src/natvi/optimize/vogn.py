"""VOGN: variational online Gauss-Newton with bias-corrected momentum for the mean (supplement S5).

    m = beta1 m + (1 - beta1) g;   S = beta2 S + (1 - beta2) H;   mu += alpha S_new^-1 m / (1 - beta1^t)

g estimates E grad log p and H, a positive matrix on the pattern, E -hess log p. With H the empirical Fisher
information, S does not converge to the inverse covariance even for Gaussian targets; the mean does.
Variants differ only in what is handed in (`derivatives.per_example`): gradients of rows, of groups, or exact
expectations as for the loglinear model; other prior precisions for deep models.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from natvi.derivatives.per_example import CurvatureGradient
from natvi.gaussian import CovarianceGaussian
from natvi.linalg import (
    ArrowMatrix,
    BlockFactor,
    DenseFactor,
    DiagonalFactor,
    LocalGlobalFactor,
    LocalGlobalMatrix,
)
from natvi.optimize.rule import Rule, StepSize, check_step_size, replace, rule_maker, size_at
from natvi.typing import Hessian, Vector


class VognState(NamedTuple):
    """The momentum, the precision on the pattern and the step count."""

    m: Vector
    S: Hessian
    count: Int[Array, ""]


@rule_maker
def vogn(step_size: StepSize = 0.001, beta1: float = 0.9, beta2: float = 0.999) -> Rule:
    """Return VOGN for diagonal, dense, block and arrow structures; it takes a gradient with a curvature."""
    check_step_size(step_size)

    def init(gaussian: Any) -> VognState:
        m = jax.tree.map(jnp.zeros_like, gaussian.mean)
        return VognState(m, precision_of(gaussian), jnp.zeros((), jnp.int32))

    def step(gaussian: Any, state: VognState, gradient: CurvatureGradient) -> tuple[Any, VognState]:
        count = state.count + 1
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.m, gradient.mean)
        S = jax.tree.map(lambda s, h: beta2 * s + (1 - beta2) * h, state.S, gradient.curvature)
        moved = replace(gaussian, gaussian.mean, factor_of(gaussian, S))
        scale = size_at(step_size, state.count) / (1 - beta1**count)
        direction = moved.covariance_product(m)
        mean = jax.tree.map(lambda x, d: x + scale * d, gaussian.mean, direction)
        return replace(moved, mean, moved.factor), VognState(m, S, count)

    return Rule(init, step, curvature=True)


def precision_of(gaussian: Any) -> Hessian:
    """Return the precision on the pattern from the factor."""
    F = gaussian.factor
    if isinstance(F, DiagonalFactor):
        return F.values**-2.0
    if isinstance(F, BlockFactor):
        squares = (jnp.einsum("ijk,ljk->kil", stack, stack) for stack in F.stacks)
        return tuple(jnp.moveaxis(jnp.linalg.inv(square), 0, -1) for square in squares)
    if isinstance(F, DenseFactor):
        square = F.matrix @ F.matrix.T
        return jnp.linalg.inv(square) if isinstance(gaussian, CovarianceGaussian) else square
    if isinstance(F, LocalGlobalFactor):
        return F.inverse_square()
    return F.multiply_transposed()


def factor_of(gaussian: Any, S: Hessian) -> Any:
    """Return the factor, of the kind the Gaussian has, of a precision on the pattern."""
    F = gaussian.factor
    if isinstance(F, DiagonalFactor):
        return DiagonalFactor(S**-0.5)
    if isinstance(F, BlockFactor):
        inverses = (jnp.linalg.inv(jnp.moveaxis(stack, -1, 0)) for stack in S)
        return BlockFactor(tuple(jnp.moveaxis(jnp.linalg.cholesky(a), 0, -1) for a in inverses), F.layout)
    if isinstance(S, LocalGlobalMatrix):
        return S.covariance_factor()
    if isinstance(S, ArrowMatrix):
        return S.cholesky()
    return DenseFactor(jnp.linalg.cholesky(jnp.linalg.inv(S) if isinstance(gaussian, CovarianceGaussian) else S))
