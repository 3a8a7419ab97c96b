"""The skeleton of a new optimizer: natural gradients with a heavy ball.

    m = beta m + (1 - beta) d / (1 - beta^t),   lambda += alpha m,   d the natural direction of (mu, F)

Copy it to src/natvi/optimize/, rename it, and write your rule into it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from natvi.derivatives.first_order import BoundGradient
from natvi.linalg import vector
from natvi.natural import natural_direction
from natvi.natural.direction import NaturalDirection
from natvi.optimize.rule import Rule, StepSize, check_step_size, replace, rule_maker, size_at


class HeavyBallState(NamedTuple):
    """What the rule remembers."""

    momentum: NaturalDirection  # m, in the shape of (mean, factor)
    count: Int[Array, ""]  # t


@rule_maker  # each setting is made once, so that fits share compiled code, and gets a name for checkpoints
def heavy_ball(step_size: StepSize = 0.05, beta: float = 0.9) -> Rule:
    """Return natural gradient ascent with momentum; `step_size` is alpha, a number or a schedule."""
    check_step_size(step_size)
    if not 0 <= beta < 1:
        raise ValueError(f"beta must lie between 0 and 1, 1 excluded; got {beta!r}.")

    def init(gaussian: Any) -> HeavyBallState:
        nothing = jax.tree.map(jnp.zeros_like, NaturalDirection(gaussian.mean, gaussian.factor))
        return HeavyBallState(nothing, jnp.zeros((), jnp.int32))

    def step(gaussian: Any, state: HeavyBallState, gradient: BoundGradient) -> tuple[Any, HeavyBallState]:
        direction = natural_direction(gaussian, gradient.mean, gradient.factor)
        # m = beta m + (1 - beta) d, without the bias of its start
        momentum = jax.tree.map(lambda m, d: beta * m + (1 - beta) * d, state.momentum, direction)
        scale = size_at(step_size, state.count) / (1 - beta ** (state.count + 1))
        mean, factor = vector.add(NaturalDirection(gaussian.mean, gaussian.factor), momentum, scale)
        return replace(gaussian, mean, factor), HeavyBallState(momentum, state.count + 1)

    return Rule(init, step)
