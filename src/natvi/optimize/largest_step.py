"""The paper's step rule on a tractable bound, and the loop around it (paper, Sections 4.1 and 5).

For the illustrations, where an evaluation of the bound costs next to nothing; every iteration starts again at rho = 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# The menu {1, 0.1, 0.01, ...}; below the last entry a move is lost in rounding.
STEPS = np.array([float(f"1e-{k}") for k in range(16)])
TOLERANCE = 1e-7


class Step(NamedTuple):
    """A point, the step that led to it and its bound."""

    point: Any
    rho: Float[Array, ""]
    elbo: Float[Array, ""]


def largest_step(
    update: Callable[[Float[Array, ""]], Any],
    elbo: Callable[[Any], Float[Array, ""]],
    current: Float[Array, ""],
    feasible: Callable[[Any], Bool[Array, ""]] | None = None,
) -> Step:
    """Take the largest rho in {1, 0.1, 0.01, ...} whose point is feasible and raises the bound.

    Args:
        update: The candidate as a function of rho; `update(0)` is where we are.
        elbo: The bound of a candidate; NaN counts as no rise.
        current: The bound where we are.
        feasible: Whether a candidate is allowed, e.g. `positive_definite`; by default all are.

    Returns:
        The step; rho = 0 and the old point if none on the menu works.

    Paper: the rule behind Table 2 and Figures 1 and 2.
    """
    menu = jnp.asarray(STEPS, dtype=current.dtype)

    def accepted(step: Step) -> Bool[Array, ""]:
        rises = step.elbo > current
        return rises if feasible is None else rises & feasible(step.point)

    def trial(rho: Float[Array, ""]) -> Step:
        point = update(rho)
        return Step(point, rho, elbo(point))

    def shorter(state: tuple[Array, Step]) -> tuple[Array, Step]:
        return state[0] + 1, trial(menu[state[0] + 1])

    def goes_on(state: tuple[Array, Step]) -> Bool[Array, ""]:
        return ~accepted(state[1]) & (state[0] + 1 < len(menu))

    _, step = jax.lax.while_loop(goes_on, shorter, (jnp.zeros((), int), trial(menu[0])))
    stay = Step(update(jnp.zeros_like(current)), jnp.zeros_like(current), current)
    return jax.tree.map(lambda moved, old: jnp.where(accepted(step), moved, old), step, stay)


class Ascent(NamedTuple):
    """A finished ascent: points and bounds from the start on, and the step of every iteration."""

    points: list[Any]
    elbos: np.ndarray
    steps: np.ndarray
    outcome: str  # "converged", "stalled" (no step raises the bound) or "max_steps"

    @property
    def iterations(self) -> int:
        """The number of iterations."""
        return len(self.steps)


def ascend(
    start: Any,
    step: Callable[[Any, Float[Array, ""]], Step],
    elbo: Float[Array, ""],
    tolerance: float = TOLERANCE,
    max_steps: int = 10_000,
) -> Ascent:
    """Step until the relative change of the bound, all constants included, falls below the tolerance.

    Args:
        start: The first point.
        step: From a point and its bound to the next, e.g. a compiled `largest_step`.
        elbo: The bound at the start.
        tolerance: The relative change |new - old| / |old| that ends the ascent.
        max_steps: The number of iterations at which patience ends.

    Paper: Section 4.1; with this rule the counts of Table 2 come out exactly.
    """
    points, elbos, steps = [start], [float(elbo)], []
    while len(steps) < max_steps:
        move = step(points[-1], jnp.asarray(elbos[-1]))
        if float(move.rho) == 0.0:
            return Ascent(points, np.array(elbos), np.array(steps), "stalled")
        points.append(move.point)
        elbos.append(float(move.elbo))
        steps.append(float(move.rho))
        if abs(elbos[-1] - elbos[-2]) < tolerance * abs(elbos[-2]):
            return Ascent(points, np.array(elbos), np.array(steps), "converged")
    return Ascent(points, np.array(elbos), np.array(steps), "max_steps")
