"""ProxGenAdam (supplement S5): Adam on E log p, and a proximal step for the entropy on the factor's diagonal.

The moments are not debiased. A coordinate whose gradients vanish has gamma up to alpha/epsilon = 1e5, which drives its
C_ii to about 316: a likely cause of the method's failures in the paper.

Noise floor: its estimates leave the entropy's gradient out, so they stay noisy at the optimum, and with a constant step
size alpha the iterates do not settle; on N(m, P^-1) each mu_i wanders about m_i with variance alpha / (2 sqrt(P_ii)).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natvi.derivatives.first_order import BoundGradient
from natvi.optimize.rule import Rule, StepSize, check_step_size, replace, rule_maker, size_at


class PgaState(NamedTuple):
    """First and second moments of the gradient, and the step count."""

    m: Any
    v: Any
    count: Int[Array, ""]


@rule_maker
def pga(step_size: StepSize = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Rule:
    """Return ProxGenAdam for C or T; its gradients are those of E log p alone."""
    check_step_size(step_size)

    def init(gaussian: Any) -> PgaState:
        zeros = jax.tree.map(jnp.zeros_like, (gaussian.mean, gaussian.factor))
        return PgaState(zeros, zeros, jnp.zeros((), jnp.int32))

    def step(gaussian: Any, state: PgaState, gradient: BoundGradient) -> tuple[Any, PgaState]:
        g = (gradient.mean, gradient.factor)
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.m, g)
        v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g**2, state.v, g)
        alpha = size_at(step_size, state.count)
        gamma = jax.tree.map(lambda v: alpha / (jnp.sqrt(v) + epsilon), v)
        mean, factor = jax.tree.map(lambda x, c, m: x + c * m, (gaussian.mean, gaussian.factor), gamma, m)
        diagonal = jax.tree.map(
            lambda x, gamma: proximal(x, gamma, gaussian.entropy_sign), factor.diagonal(), gamma[1].diagonal()
        )
        return replace(gaussian, mean, factor.with_diagonal(diagonal)), PgaState(m, v, state.count + 1)

    return Rule(init, step, with_entropy=False)


def proximal(x: Float[Array, "*d"], gamma: Float[Array, "*d"], sign: float) -> Float[Array, "*d"]:
    """Return the minimiser of -sign log |f| + (f - x)^2 / (2 gamma) near x, the entropy being sign log |F|.

    For C (sign 1) it keeps C_ii away from zero; for T (sign -1) there is none where x^2 <= 4 gamma, and x stays.
    """
    square = x**2 + 4 * sign * gamma
    inside = square > 0
    root = jnp.sqrt(jnp.where(inside, square, 0.0))
    return jnp.where(inside, 0.5 * (x + jnp.where(x < 0, -1.0, 1.0) * root), x)
