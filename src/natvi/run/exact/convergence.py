"""When a deterministic ascent is done, and how it ended."""

import numpy as np
from jaxtyping import Array, Bool, Float

from natvi.optimize.ascent import AscentState, is_stalled
from natvi.optimize.system import System
from natvi.run.outcome import Outcome

SMALL_MOVE = 1e-3  # in posterior sds


def is_converged(system: System, state: AscentState, tolerance: float | Float[Array, ""]) -> Bool[Array, ""] | np.bool_:
    """Whether the bound will rise by almost nothing, and a full step would hardly move the shared means.

    Where the residual holds the whole step in posterior sds, mean and precision, half its square is the rise that is
    left near the maximum, where the bound is close to quadratic (Newton's decrement). Where it does not, the last full
    step has to have raised the bound by almost nothing.
    """
    little = tolerance * (1.0 + abs(state.elbo))
    small_move = abs(state.residual.shared).max() < SMALL_MOVE
    if system.whole_residual:
        return (state.accepted > 0) & (0.5 * (state.residual.shared**2).sum() <= little) & small_move
    return (state.accepted > 1) & (state.halvings <= 0) & (state.gain <= little) & small_move


def is_finished(system: System, state: AscentState, tolerance: float | Float[Array, ""]) -> Bool[Array, ""] | np.bool_:
    """Whether another iteration would be of no use."""
    lost = (state.evaluated > 0) & (state.accepted == 0)
    return is_converged(system, state, tolerance) | is_stalled(state) | lost


def judge(system: System, state: AscentState, tolerance: float) -> Outcome:
    """Name the outcome of a state, on the host, at which the loop stopped."""
    if int(state.accepted) == 0:
        return Outcome.NONFINITE
    if bool(is_converged(system, state, tolerance)):
        return Outcome.CONVERGED
    return Outcome.STALLED if bool(is_stalled(state)) else Outcome.MAX_STEPS
