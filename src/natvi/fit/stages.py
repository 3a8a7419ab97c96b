"""When a stochastic fit is done: stages of one step size each, told apart from noise by windows of the bound."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

LEAST_SCALE = 2.0**-12
LEAST_WINDOWS = 10
REMEMBERED = 40


class Stage(NamedTuple):
    """What the stopping rule remembers; part of the state, so that a resumed fit stops where it would have."""

    windows: Float[Array, " w"]  # mean bound of the last windows of this stage, NaN where there is none yet
    last_level: Float[Array, ""]  # the bound at the end of the previous stage
    scale: Float[Array, ""]  # the factor by which steps are shortened
    settled: Bool[Array, ""]  # whether the fit is done


def first_stage() -> Stage:
    """Return the stage before the first window: steps of full length."""
    return Stage(jnp.full(REMEMBERED, jnp.nan), jnp.asarray(-jnp.inf), jnp.ones(()), jnp.asarray(False))


def judge_window(stage: Stage, window: float, gap: float) -> Stage:
    """Add a window; end the stage when its second half is no better than its first beyond noise.

    Args:
        stage: The stage under way.
        window: The mean bound of the window.
        gap: The gain of a whole stage, in nats, below which the fit is done.

    Returns:
        The same stage with one more window, the next stage with half the step, or a settled one.
    """
    remembered = np.append(np.asarray(stage.windows), window)[1:]
    windows = remembered[~np.isnan(remembered)]
    stage = stage._replace(windows=jnp.asarray(remembered))
    half = len(windows) // 2
    if half < LEAST_WINDOWS // 2:
        return stage
    first, second = windows[:half], windows[half:]
    noise = np.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    if second.mean() - first.mean() > noise:
        return stage
    level, scale = float(second.mean()), float(stage.scale)
    if level - float(stage.last_level) < gap or scale <= LEAST_SCALE:
        return stage._replace(settled=jnp.asarray(True))
    blank = jnp.full_like(stage.windows, jnp.nan)
    return Stage(blank, jnp.asarray(level, stage.last_level.dtype), stage.scale / 2, stage.settled)
