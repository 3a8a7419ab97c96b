"""Plain gradient ascent, Euclidean or natural."""

from typing import Any

import jax
import jax.numpy as jnp

from natvi.natural import natural_direction
from natvi.natural.direction import NaturalDirection
from natvi.optimize.rule import (
    Rule,
    StepSize,
    check_step_size,
    optax_rule,
    replace,
    rule_maker,
    scale_by_step,
    size_at,
)


@rule_maker
def plain(rho: StepSize, natural: bool = False) -> Rule:
    """Return plain steps of size rho; along the natural gradient T moves first and mu with the new T (Corollary 1)."""
    if not natural:
        return optax_rule(scale_by_step(rho))

    def step(gaussian: Any, count: Any, gradient: Any) -> tuple[Any, Any]:
        return follow(gaussian, count, gradient.mean, natural_direction(gaussian, gradient.mean, gradient.factor))

    def follow(gaussian: Any, count: Any, gradient: Any, direction: NaturalDirection) -> tuple[Any, Any]:
        size = size_at(rho, count)
        factor = jax.tree.map(lambda f, d: f + size * d, gaussian.factor, direction.factor)
        move = gaussian.moved_mean(factor, gradient, direction.mean)
        mean = jax.tree.map(lambda m, d: m + size * d, gaussian.mean, move)
        return replace(gaussian, mean, factor), count + 1

    check_step_size(rho)
    return Rule(lambda _: jnp.zeros((), jnp.int32), step, follow=follow)
