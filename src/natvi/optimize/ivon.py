"""IVON: variational online Newton with a curvature from one draw (Shen et al. 2024), independent coordinates.

    m = beta1 m + (1 - beta1) g;   e = (1 - beta2) (1 - H / S);   S <- S (1 - e + e^2 / 2)
    mu += alpha S_new^-1 m / (1 - beta1^t)

g estimates E grad log p and H, of either sign, E -hess log p (`derivatives.stein`). 1 - e + e^2 / 2 is at least 1/2, so
the precision S stays positive whatever the draw. With N rows and a prior precision N delta, S is N (h + delta) of the
authors, and their update of h is this one.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natvi.derivatives.per_example import CurvatureGradient
from natvi.optimize.rule import Rule, StepSize, check_step_size, replace, rule_maker, size_at


class IvonState(NamedTuple):
    """The momentum, the precision of every coordinate and the step count."""

    m: Float[Array, " d"]
    S: Float[Array, " d"]
    count: Int[Array, ""]


@rule_maker
def ivon(step_size: StepSize = 0.1, beta1: float = 0.9, beta2: float = 0.9999) -> Rule:
    """Return IVON for independent coordinates; it takes a gradient with a curvature by Stein's identity.

    Example:
        >>> ivon(0.1).curvature
        'stein'
    """
    check_step_size(step_size)
    for name, beta in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= beta < 1:
            raise ValueError(f"{name} must lie between 0 and 1, 1 excluded; got {beta!r}.")

    def init(gaussian: Any) -> IvonState:
        return IvonState(jnp.zeros_like(gaussian.mean), gaussian.precision(), jnp.zeros((), jnp.int32))

    def step(gaussian: Any, state: IvonState, gradient: CurvatureGradient) -> tuple[Any, IvonState]:
        count = state.count + 1
        m = beta1 * state.m + (1 - beta1) * gradient.mean
        e = (1 - beta2) * (1 - gradient.curvature / state.S)
        S = state.S * (1 - e + 0.5 * e**2)
        scale = size_at(step_size, state.count) / (1 - beta1**count)
        return replace(gaussian, gaussian.mean + scale * m / S, gaussian.with_precision(S).factor), IvonState(
            m, S, count
        )

    return Rule(init, step, curvature="stein")
