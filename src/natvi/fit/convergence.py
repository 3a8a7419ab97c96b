"""When a deterministic ascent is done, and how it ended."""

from enum import StrEnum

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natvi.optimize.ascent import AscentState, is_stalled


class Outcome(StrEnum):
    """How a fit ended."""

    CONVERGED = "converged"
    MAX_STEPS = "max_steps"
    STALLED = "stalled"
    INTERRUPTED = "interrupted"
    NONFINITE = "nonfinite"
    SINGULAR_FACTOR = "singular_factor"
    UNBOUNDED = "unbounded"


SMALL_MOVE = 1e-3  # in posterior sds


def is_converged(state: AscentState, tolerance: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether the last full step raised the bound by almost nothing and would hardly move the shared means."""
    small_gain = state.gain <= tolerance * (1.0 + jnp.abs(state.elbo))
    small_move = jnp.max(jnp.abs(state.residual.shared)) < SMALL_MOVE
    return (state.accepted > 1) & (state.halvings <= 0) & small_gain & small_move


def is_finished(state: AscentState, tolerance: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether another iteration would be of no use."""
    lost = (state.evaluated > 0) & (state.accepted == 0)
    return is_converged(state, tolerance) | is_stalled(state) | lost


def judge(state: AscentState, tolerance: float) -> Outcome:
    """Name the outcome of a state at which the loop stopped."""
    if int(state.accepted) == 0:
        return Outcome.NONFINITE
    if bool(is_converged(state, jnp.asarray(tolerance))):
        return Outcome.CONVERGED
    return Outcome.STALLED if bool(is_stalled(state)) else Outcome.MAX_STEPS
