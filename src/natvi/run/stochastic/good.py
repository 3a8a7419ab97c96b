"""Where a fit that diverges goes back to: the end of the last window in which the bound had not fallen away.

Numbers stay finite for a while after steps have become too long, so the last finite Gaussian is worth nothing. A window
is good where every step was finite and neither its mean nor its last tenth has lost half of all that the windows have
gained; of the first window, where they are not far below its own first step.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class Good(NamedTuple):
    """What to go on from: the recipe's state, the running average, the bounds of the window and the step count."""

    algorithm: Any
    average: Any
    window: Float[Array, " w"]
    count: Int[Array, ""]

    @classmethod
    def of(cls, state: Any) -> "Good":
        """Return these parts of a loop's state."""
        return cls(state.algorithm, state.average, state.window, state.count)


def holds(levels: np.ndarray, window: np.ndarray) -> bool:
    """Whether a window has not fallen away.

    Args:
        levels: The mean bounds of the windows before it.
        window: The bounds of its steps.

    Example:
        >>> before, steady = np.array([-900.0, -500.0]), np.full(20, -600.0)
        >>> holds(before, steady), holds(before, np.append(steady[1:], -1e9)), holds(before, np.append(steady, np.nan))
        (True, False, False)
        >>> holds(np.empty(0), np.array([-900.0, -1e20]))
        False
    """
    if not np.isfinite(window).all():
        return False
    least = min(float(window.mean()), float(window[-max(1, len(window) // 10) :].mean()))
    seen = levels[np.isfinite(levels)]
    if len(seen) == 0:
        return bool(least >= window[0] - 0.5 * abs(window[0]))
    return bool(least >= 0.5 * (seen[0] + max(float(seen.max()), float(window.mean()))))


def fall_back(state: Any, good: Good) -> Any:
    """Return the loop's state as it was at the end of that window; the fit can go on from it with shorter steps."""
    parts = good._asdict()
    size = state.window.shape[0]
    later = jnp.arange(state.trace.shape[0]) >= good.count // size
    return state._replace(
        **parts, trace=jnp.where(later, jnp.nan, state.trace), in_stage=jnp.zeros_like(state.in_stage)
    )
