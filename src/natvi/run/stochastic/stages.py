"""When a stochastic fit is done: stages of one step size each, told apart from noise by windows of the bound.

A rise is looked for in the last quarter of all windows so far. A fit that took long to get where it is gets as much
longer to show that it still moves: a fixed number of windows would take a slow optimizer for one that has arrived.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

LEAST_SCALE = 2.0**-12
LEAST_WINDOWS, SHARE, REMEMBERED = 20, 4, 1024


class Stage(NamedTuple):
    """What the stopping rule remembers; part of the state, so that a resumed fit stops where it would have."""

    windows: Float[Array, " w"]  # mean bound of the last windows of this stage, NaN where there is none yet
    num_windows: Int[Array, ""]  # of all stages
    last_level: Float[Array, ""]  # the bound at the end of the previous stage
    scale: Float[Array, ""]  # the factor by which steps are shortened
    settled: Bool[Array, ""]  # whether the fit is done


def first_stage() -> Stage:
    """Return the stage before the first window: steps of full length."""
    blank, none = jnp.full(REMEMBERED, jnp.nan), jnp.zeros((), jnp.int32)
    return Stage(blank, none, jnp.asarray(-jnp.inf), jnp.ones(()), jnp.asarray(False))


def judge_window(stage: Stage, window: float, gap: float) -> Stage:
    """Add a window; end the stage when the later half of the windows looked at is no better than the earlier one.

    Args:
        stage: The stage under way.
        window: The mean bound of the window.
        gap: The gain of a whole stage, in nats, below which the fit is done.

    Returns:
        The same stage with one more window, the next stage with half the step, or a settled one.
    """
    remembered = np.append(np.asarray(stage.windows), window)[1:]
    stage = stage._replace(windows=jnp.asarray(remembered), num_windows=stage.num_windows + 1)
    half = int(np.clip(int(stage.num_windows) // SHARE, LEAST_WINDOWS, REMEMBERED)) // 2
    first, second = remembered[-2 * half : -half], remembered[-half:]
    if np.isnan(first[0]) or second.mean() > first.mean():
        return stage
    level, scale = float(second.mean()), float(stage.scale)
    if level - float(stage.last_level) < gap or scale <= LEAST_SCALE:
        return stage._replace(settled=jnp.asarray(True))
    blank = jnp.full_like(stage.windows, jnp.nan)
    return Stage(blank, stage.num_windows, jnp.asarray(level, stage.last_level.dtype), stage.scale / 2, stage.settled)
