"""From near the optimum to it: L-BFGS on the bound in coordinates in which it is close to a sphere."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

MEMORY = 12
SMALL = 3e-3  # length of the gradient: the rise that is left is about half its square
MOST_STEPS, MOST_HALVINGS = 80, 8
Slope = Callable[[Float[np.ndarray, " n"]], tuple[float, Float[np.ndarray, " n"]]]


class Polished(NamedTuple):
    """The best coordinates, the bound and its gradient there, and how often it was asked for."""

    w: np.ndarray
    bound: float
    gradient: np.ndarray
    looks: int


def polish(
    slope: Slope, size: int, most_steps: int = MOST_STEPS, small: float = SMALL, reach: float = np.inf
) -> Polished:
    """Maximise from the origin.

    Args:
        slope: From coordinates to the bound and its gradient.
        size: The number of coordinates.
        most_steps: At most.
        small: The length of a gradient that counts as nothing.
        reach: The longest step.

    Example:
        >>> polish(lambda w: (-0.5 * float((w - 1) @ (w - 1)), 1 - w), 2).w
        array([1., 1.])
    """
    w = np.zeros(size)
    bound, gradient = slope(w)
    looks, past = 1, []
    for _ in range(most_steps):
        if not np.isfinite(bound) or np.linalg.norm(gradient) < small:
            break
        direction = _two_loops(gradient, past)
        if direction @ gradient <= 0:
            past, direction = [], gradient
        direction = direction * min(1.0, reach / float(np.linalg.norm(direction)))
        step, found = 1.0, None
        for _ in range(MOST_HALVINGS):
            candidate = w + step * direction
            value, new = slope(candidate)
            looks += 1
            if value > bound + 1e-4 * step * float(direction @ gradient) or (
                value >= bound - 1e-10 * (1 + abs(bound)) and np.linalg.norm(new) < np.linalg.norm(gradient)
            ):
                found = value, new
                break
            step *= 0.4
        if found is None:
            if not past:
                break
            past = []
            continue
        s, y = candidate - w, gradient - found[1]
        if s @ y > 1e-10 * float(y @ y):
            past = [*past[-MEMORY + 1 :], (s, y)]
        w, (bound, gradient) = candidate, found
    return Polished(w, bound, gradient, looks)


def _two_loops(gradient: np.ndarray, past: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    q, alphas = gradient.copy(), []
    for s, y in reversed(past):
        alphas.append((s @ q) / (s @ y))
        q = q - alphas[-1] * y
    if past:
        s, y = past[-1]
        q = q * ((s @ y) / (y @ y))
    for (s, y), alpha in zip(past, reversed(alphas), strict=True):
        q = q + (alpha - (y @ q) / (s @ y)) * s
    return q
