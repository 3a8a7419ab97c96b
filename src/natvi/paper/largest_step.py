"""The paper's step rule on a tractable bound, and the loop around it (paper, Sections 4.1 and 5).

For the illustrations, where an evaluation of the bound costs next to nothing. The loop runs on the host, so the caller
decides what is compiled; every iteration starts again at rho = 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# The menu {1, 0.1, 0.01, ...}; below the last entry a move is lost in rounding.
STEPS = tuple(float(f"1e-{k}") for k in range(16))
TOLERANCE = 1e-7


class Step(NamedTuple):
    """A point, the step that led to it and its bound."""

    point: Any
    rho: float
    elbo: float


def largest_step(
    update: Callable[[float], Any],
    elbo: Callable[[Any], Any],
    current: float,
    feasible: Callable[[Any], Any] | None = None,
) -> Step | None:
    """Take the largest rho in {1, 0.1, 0.01, ...} whose point is feasible and raises the bound.

    Args:
        update: The candidate as a function of rho.
        elbo: The bound of a candidate; NaN counts as no rise.
        current: The bound where we are.
        feasible: Whether a candidate is allowed, e.g. `positive_definite`; by default all are.

    Returns:
        The step, or None if no rho on the menu works.

    Paper: the rule behind Table 2 and Figures 1 and 2.
    """
    for rho in STEPS:
        point = update(rho)
        if feasible is not None and not feasible(point):
            continue
        value = float(elbo(point))
        if value > current:
            return Step(point, rho, value)
    return None


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
    update: Callable[[Any, Any, float], Any],
    gradient: Callable[[Any], Any],
    elbo: Callable[[Any], Any],
    feasible: Callable[[Any], Any] | None = None,
    tolerance: float = TOLERANCE,
    max_steps: int = 10_000,
) -> Ascent:
    """Climb by largest steps until the relative change of the bound falls below the tolerance.

    Args:
        start: The first point.
        update: From a point, a gradient and a step to the next point, e.g. one of `natvi.optimize.deterministic`.
        gradient: The gradient at a point, in the form that the update takes.
        elbo: The bound at a point, all constants included.
        feasible: Whether a point is allowed; by default all are.
        tolerance: The relative change |new - old| / |old| that ends the ascent.
        max_steps: The number of iterations at which patience ends.

    Example:
        >>> done = ascend(0.0, lambda x, g, rho: x + rho * g, lambda x: 2 - x, lambda x: -1 - (2 - x) ** 2 / 2)
        >>> done.points, done.outcome
        ([0.0, 2.0], 'stalled')

    Paper: Section 4.1; with this rule the counts of Table 2 come out.
    """
    points, elbos, steps, outcome = [start], [float(elbo(start))], [], "max_steps"
    while len(steps) < max_steps:
        here, slope = points[-1], gradient(points[-1])
        step = largest_step(lambda rho, x=here, g=slope: update(x, g, rho), elbo, elbos[-1], feasible)
        if step is None:
            outcome = "stalled"
            break
        points.append(step.point)
        elbos.append(step.elbo)
        steps.append(step.rho)
        if abs(elbos[-1] - elbos[-2]) < tolerance * abs(elbos[-2]):
            outcome = "converged"
            break
    return Ascent(points, np.array(elbos), np.array(steps), outcome)
