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
from natvi.optimize.rule import Rule, StepSize, check_step_size, replace, rule_maker, size_at
from natvi.typing import Hessian, Vector


class VognState(NamedTuple):
    """The momentum, the precision on the pattern and the step count."""

    m: Vector
    S: Hessian
    count: Int[Array, ""]


@rule_maker
def vogn(step_size: StepSize = 0.001, beta1: float = 0.9, beta2: float = 0.999) -> Rule:
    """Return VOGN for any structure; it takes a gradient with a curvature."""
    check_step_size(step_size)

    def init(gaussian: Any) -> VognState:
        m = jax.tree.map(jnp.zeros_like, gaussian.mean)
        return VognState(m, gaussian.precision(), jnp.zeros((), jnp.int32))

    def step(gaussian: Any, state: VognState, gradient: CurvatureGradient) -> tuple[Any, VognState]:
        count = state.count + 1
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.m, gradient.mean)
        S = jax.tree.map(lambda s, h: beta2 * s + (1 - beta2) * h, state.S, gradient.curvature)
        moved = gaussian.with_precision(S)
        scale = size_at(step_size, state.count) / (1 - beta1**count)
        direction = moved.covariance_product(m)
        mean = jax.tree.map(lambda x, d: x + scale * d, gaussian.mean, direction)
        return replace(moved, mean, moved.factor), VognState(m, S, count)

    return Rule(init, step, curvature="rows")
