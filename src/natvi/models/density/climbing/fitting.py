"""From a start to the optimum of the bound and the covariance it implies: climb, look for rivals, polish, respond."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from natvi.models.density.climbing.climb import REACH, Climbed, ClimbState, climb
from natvi.models.density.climbing.polish import polish
from natvi.models.density.climbing.response import FEW, any_directions, linear_response, telling_directions
from natvi.models.density.evaluator import BATCH, Evaluator
from natvi.models.density.start import START_SDS
from natvi.models.density.structures.choice import MANY, Structure
from natvi.run.outcome import Outcome

FAR_STARTS, FAR_SDS, FAR_STEPS = 2, 8.0, 60  # further climbs, and how far away they start
FAR_MOST = 1000  # dimensions, beyond which a direction taken at random says little of other modes
SAME_PLACE = 0.5  # sds: a climb that comes so close has come back
BACK_STEPS, NEAR = 30, 0.25  # of the mean alone, in many dimensions; how close counts there, times sqrt d sds
APART, WORSE = 4.0, 12.0  # sds and nats: a rival is a place of its own, and not much worse


class Rival(NamedTuple):
    """Another place where a climb ended: how far away, in sds, and how many nats lower its bound is."""

    distance: float
    lower: float


class Optimum(NamedTuple):
    """The end of the deterministic part.

    Attributes:
        gaussian: The optimum of the bound.
        wider: With the covariance of the linear response.
        smallest: The smallest eigenvalue of minus the bound's Hessian; one for a Gaussian.
        bound: On the points.
        outcome: How it ended.
        steps: Evaluations on all points.
        state: To go on from.
        rivals: Other places where climbs ended.
        num_points: On which expectations are taken.
    """

    gaussian: Any
    wider: Any
    smallest: float
    bound: float
    outcome: Outcome
    steps: int
    state: ClimbState
    rivals: tuple[Rival, ...]
    num_points: int


def find_optimum(
    evaluator: Evaluator,
    start: np.ndarray,
    structure: Structure,
    *,
    seed: int,
    max_steps: int,
    tolerance: float,
    state: ClimbState | None,
    watch: Callable[[ClimbState], bool],
    look_around: bool = True,
) -> Optimum:
    """Fit a Gaussian.

    Args:
        evaluator: The log-density.
        start: The mean to start from.
        structure: The shape of the Gaussian.
        seed: Of the points and of further starts.
        max_steps: Of a climb.
        tolerance: The rise that is left, relative to the bound, at which polishing ends.
        state: Of an earlier fit, to go on from.
        watch: Called between the steps of the first climb; whether to end now.
        look_around: Whether to climb from far away too, in search of other modes.
    """
    d, rng = len(start), np.random.default_rng([seed, 2])
    few, many = (structure.points(kind, d, seed) for kind in ("climb", "polish"))
    rivals: tuple[Rival, ...] = ()
    begin = state or ClimbState.at(first_gaussian(evaluator, start, structure, few))
    first = climb(evaluator, begin, few, max_steps, watch)
    if first.outcome in (Outcome.UNBOUNDED, Outcome.NONFINITE, Outcome.MAX_STEPS):
        here = first.state.gaussian
        return Optimum(
            *(here, here, 1.0, first.bound, first.outcome, len(first.state.trace)),
            *(first.state, (), len(few)),
        )
    best = first
    if look_around and state is None and d <= FAR_MOST:
        best, rivals = _look_around(evaluator, first, few, rng)
    near = best.state.gaussian
    small = float(np.sqrt(2 * tolerance * (1 + abs(best.bound))))
    found = polish(lambda w: near.slope(w, evaluator, many), near.num_coordinates, small=small)
    gaussian = near.shifted(found.w)
    wider, smallest = _respond(evaluator, gaussian, structure.points("response", d, seed), rng)
    outcome = Outcome.CONVERGED if np.linalg.norm(found.gradient) < 30 * small else Outcome.STALLED
    steps = len(best.state.trace) + found.looks
    return Optimum(gaussian, wider, smallest, found.bound, outcome, steps, best.state, rivals, len(many))


def first_gaussian(evaluator: Evaluator, start: np.ndarray, structure: Structure, z: np.ndarray) -> Any:
    """Return the narrow Gaussian with the best bound: badly scaled parameters need a narrower one."""
    tried, z = [structure.narrow(start, sd) for sd in START_SDS], some_pairs(z)
    with np.errstate(all="ignore"):
        bounds = [one.expect(evaluator(one.at(z)), z).bound for one in tried]
    return tried[int(np.argmax(bounds))]


def _look_around(
    evaluator: Evaluator, first: Climbed, z: np.ndarray, rng: np.random.Generator
) -> tuple[Climbed, tuple[Rival, ...]]:
    """Climb again from far away on both sides; return the best end and the others."""
    here = first.state.gaussian

    def is_back(state: ClimbState) -> bool:
        return here.distance(state.gaussian.mean) < SAME_PLACE

    some = some_pairs(z)

    direction = rng.standard_normal((1, len(here.mean)))
    ends = [first]
    for sign in (1.0, -1.0)[:FAR_STARTS]:
        away = here._replace(mean=here.at(sign * FAR_SDS * direction)[0])
        with np.errstate(all="ignore"):
            if len(here.mean) > MANY and _comes_back(evaluator, here, sign * FAR_SDS * direction[0], some):
                continue
            found = climb(evaluator, ClimbState.at(away), z, FAR_STEPS, is_back)
        if found.outcome is Outcome.CONVERGED:
            ends.append(found)
    best = max(ends, key=lambda end: end.bound if end is not first else end.bound + 0.05)
    middle = best.state.gaussian
    rivals = []
    for end in ends:
        distance = middle.distance(end.state.gaussian.mean)
        if end is best or distance <= APART or best.bound - end.bound >= WORSE:
            continue
        there = end.state.gaussian
        if there.expect(evaluator(there.at(z)), z).is_flat:  # else a climb that lingered in a long tail
            rivals.append(Rival(distance, best.bound - end.bound))
    return best, tuple(rivals)


def some_pairs(z: np.ndarray) -> np.ndarray:
    """Return the first points and their negatives, as many as one call looks at."""
    half, count = len(z) // 2, min(len(z), BATCH) // 2
    return np.concatenate([z[:count], z[half : half + count]])


def _comes_back(evaluator: Evaluator, here: Any, away: np.ndarray, z: np.ndarray) -> bool:
    """Whether the mean alone, from far away and on few points, climbs back: in many dimensions it mostly does."""

    def slope(m: np.ndarray) -> tuple[float, np.ndarray]:
        looked = evaluator(here.at(z + away + m))
        return float(np.mean(looked.values)), here.whiten(looked.gradients).mean(axis=0)

    size = float(np.sqrt(len(away)))
    ended = away + polish(slope, len(away), BACK_STEPS, small=1.0, reach=REACH * size).w
    return bool(np.linalg.norm(ended) < NEAR * size)


def _respond(evaluator: Evaluator, gaussian: Any, z: np.ndarray, rng: np.random.Generator) -> tuple[Any, float]:
    if not gaussian.num_responding:
        return gaussian, 1.0

    def slope(w: np.ndarray) -> tuple[float, np.ndarray]:
        return gaussian.slope(w, evaluator, z)

    origin = np.zeros(gaussian.num_coordinates)
    directions = _directions(evaluator, gaussian, z, rng)
    response = linear_response(slope, origin, slope(origin)[1], directions)
    try:
        return gaussian.widened(response.S), response.smallest
    except np.linalg.LinAlgError:
        return gaussian, response.smallest


def _directions(evaluator: Evaluator, gaussian: Any, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the directions of the mean from which the linear response is looked for."""
    if gaussian.num_responding > FEW and gaussian.structure == "dense":
        u = gaussian.whiten(evaluator(gaussian.at(z)).gradients)
        if np.all(np.isfinite(u)):
            return telling_directions(u, z)
    return any_directions(gaussian.num_responding, rng)
