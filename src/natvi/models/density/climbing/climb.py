"""Climb the bound from a narrow Gaussian: safeguarded steps on fixed points, as long as they pay.

The bound is climbed, never the density: centred hierarchies have no finite mode. A step counts if the bound on the
same points rises; else it is tried shorter, then with the mean or the covariance alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from natvi.models.density.evaluator import Evaluator
from natvi.models.density.structures.choice import MANY
from natvi.run.outcome import Outcome

FIRST_RATIO, LARGEST_RATIO = 10.0, 30.0  # r
REACH = 2.0  # R / sqrt d
SHORTER, LONGER = 0.3, 3.0
SMALL_GAIN, SMALL_GAINS = 0.02, 2  # nats, and how many such steps in a row are the end
NEARLY = 0.05  # nats for every dimension: what the last step gained near the optimum
MOST_TRIES = 14
FAR = 1e12  # from the start, in units of the start: no posterior of sane units is there


class ClimbState(NamedTuple):
    """Everything the next step needs, as arrays.

    Attributes:
        gaussian: The best one so far.
        ratio: r, by which a precision may change.
        reach: R, how far the mean may go, in sds.
        small: How many small gains there were in a row.
        trace: The bound after each evaluation on all points.
        finished: Whether the climb is over.
    """

    gaussian: Any
    ratio: np.ndarray
    reach: np.ndarray
    small: np.ndarray
    trace: np.ndarray
    finished: np.ndarray

    @classmethod
    def at(cls, gaussian: Any) -> "ClimbState":
        """Return the state of a climb that begins."""
        return _pack(gaussian, FIRST_RATIO, REACH * float(np.sqrt(len(gaussian.mean))), 0, [])


class Climbed(NamedTuple):
    """Where a climb ended, with CONVERGED, MAX_STEPS, INTERRUPTED, STALLED, UNBOUNDED or NONFINITE."""

    state: ClimbState
    bound: float
    outcome: Outcome


def climb(
    evaluator: Evaluator,
    state: ClimbState,
    z: Float[np.ndarray, "m d"],
    most_steps: int,
    watch: Callable[[ClimbState], bool] = lambda state: False,
) -> Climbed:
    """Climb from a Gaussian on fixed points.

    Args:
        evaluator: The log-density.
        state: Where to go on.
        z: The points.
        most_steps: Evaluations on all points at most, earlier ones included.
        watch: Called between steps; whether to end now.
    """
    here = state.gaussian
    now = here.expect(evaluator(here.at(z)), z)
    origin, trace, small = here.mean, list(state.trace) or [now.bound], int(state.small)
    ratio, reach = float(state.ratio), float(state.reach)
    outcome = None if np.isfinite(now.bound) else Outcome.NONFINITE
    last, nearly = np.inf, NEARLY * len(origin) if here.structure == "dense" and len(origin) > MANY else -np.inf
    while outcome is None:
        packed = _pack(here, ratio, reach, small, trace)
        if len(trace) >= most_steps or watch(packed):
            return Climbed(packed, now.bound, Outcome.MAX_STEPS)
        before, found, candidate, seen, length = now.bound, None, here, now, 0.0
        for attempt in range(MOST_TRIES):
            mean, spread = attempt % 4 != 3, attempt % 4 != 2
            candidate, length = here.moved(now, reach, ratio, mean, spread)
            seen = candidate.expect(evaluator(candidate.at(z)), z)
            trace.append(max(seen.bound, now.bound))
            if seen.bound > now.bound:
                found = attempt
                break
            if last < nearly:
                outcome = Outcome.CONVERGED
                break
            reach, ratio = SHORTER * (min(reach, length) if mean else reach), float(np.sqrt(ratio))
        if outcome is not None:
            # many curvatures from few points: full steps swing around the optimum, to which polishing goes straight
            break
        if found is None:
            # at the optimum nothing rises; elsewhere something is wrong
            outcome = Outcome.CONVERGED if now.is_flat else Outcome.STALLED
            break
        if found == 0:
            ratio, reach = min(1.5 * ratio, LARGEST_RATIO), reach * (LONGER if length > 0.9 * reach else 1.0)
        here, now = candidate, seen
        last = now.bound - before
        small = small + 1 if last < SMALL_GAIN else 0
        if small >= SMALL_GAINS:
            outcome = Outcome.CONVERGED
        elif max(np.max(here.sds), np.max(np.abs(here.mean - origin))) > FAR * max(1.0, np.max(np.abs(origin))):
            outcome = Outcome.UNBOUNDED
    return Climbed(_pack(here, ratio, reach, small, trace)._replace(finished=np.asarray(True)), now.bound, outcome)


def _pack(gaussian: Any, ratio: float, reach: float, small: int, trace: list[float]) -> ClimbState:
    found = np.asarray(trace, dtype=float)
    return ClimbState(gaussian, np.asarray(ratio), np.asarray(reach), np.asarray(small), found, np.asarray(False))
