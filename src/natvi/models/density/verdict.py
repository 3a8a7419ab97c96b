"""Which answer is handed out, and what is said about it: the Gaussian where it is right, else corrected draws."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from natvi.judge import thresholds, words
from natvi.judge.trust import CARE, GOOD, REFUSE, Trust
from natvi.models.density.check import Weighed, weigh_gaussian
from natvi.models.density.climbing.fitting import Optimum, Rival
from natvi.models.density.evaluator import Evaluator
from natvi.models.density.moving import ROUNDS, Moved, draw_plainly, move_draws
from natvi.special import ndtri

ONE_MODE = "what was checked is the surroundings of one mode; others, far away, would not be seen"
NEXT = "the next rung is method='nuts'"
HEAVY = 3.0  # nats, that a rival is lower, below which it holds more than a twentieth of the mass


class Answer(NamedTuple):
    """What the fit hands out.

    Attributes:
        method: "gaussian" or "psis".
        gaussian: The Gaussian, in the free space.
        read: Draws in the user's space, where they are the answer; else None.
        concerns: The verdicts on it.
        effective: How many independent draws the draws are worth.
        notes: What else the user should know.
        bound: The bound and its standard error, where they are not those of the Gaussian in the free space.
    """

    method: str
    gaussian: Any
    read: np.ndarray | None
    concerns: tuple[Trust, ...]
    effective: float = 0.0
    notes: tuple[str, ...] = ()
    bound: tuple[float, float] | None = None

    @property
    def is_sure(self) -> bool:
        """Whether nothing is said against it."""
        return all(one.level == GOOD for one in self.concerns)


def judge(
    evaluator: Evaluator,
    found: Optimum,
    names: list[str],
    method: str,
    rng: np.random.Generator,
    z: np.ndarray,
    elsewhere: Callable[[], Answer | None] = lambda: None,
) -> Answer:
    """Check the Gaussian, and correct it where it is off and the method allows it.

    Args:
        evaluator: The log-density.
        found: The optimum.
        names: Of everything the user reads.
        method: "auto", "gaussian" or "psis".
        rng: For draws.
        z: Whitened points, on which the user's numbers are related to the free ones.
        elsewhere: Where the Gaussian is off, gives an answer found in other coordinates, if there are any.
    """
    local = local_evidence(found.rivals)
    numbers = (("smallest eigenvalue of the linear response", found.smallest),)
    if found.gaussian.structure != "dense":
        best, read = draw_plainly(found.wider, rng), evaluator.read(found.wider.at(z))
        moved = move_draws(evaluator, found.wider, best, rng)
        answer = _after_moving(method, found.wider, best, read, moved, names, local, numbers)
        other = None if answer.is_sure or method == "gaussian" else elsewhere()
        return other if other is not None and other.is_sure else answer
    weighed: list[tuple[Any, Weighed, np.ndarray]] = []
    for gaussian in (found.wider, found.gaussian):
        read = evaluator.read(gaussian.at(z))
        varies = np.ptp(read, axis=0) > 0
        B = np.where(varies[:, None], (read - read.mean(axis=0)).T @ z, 0.0)
        one = weigh_gaussian(evaluator, gaussian, B, varies, rng)
        weighed.append((gaussian, one, read))
        shape = one.shape
        if shape is not None and shape.reliable and shape.clearly_right:
            verdict = words.judge_shape(shape, _only(names, varies), "")
            if method != "psis":
                return Answer("gaussian", gaussian, None, (verdict._replace(numbers=verdict.numbers + numbers), *local))
            break
        if shape is None or one.hopeless:
            break
    gaussian, best, read = max(weighed, key=lambda item: item[1].promise)
    moved = move_draws(evaluator, gaussian, best, rng, rounds=1 if method == "auto" else ROUNDS)
    answer = _after_moving(method, gaussian, best, read, moved, names, local, numbers)
    if method != "auto" or (answer.method == "gaussian" and answer.is_sure):
        return answer
    other = elsewhere()
    if other is not None and other.is_sure:
        return other
    if not moved.settled:
        moved = move_draws(evaluator, gaussian, best, rng)
        answer = _after_moving(method, gaussian, best, read, moved, names, local, numbers)
    return answer


def _after_moving(
    method: str,
    gaussian: Any,
    weighed: Weighed,
    read: np.ndarray,
    moved: Moved,
    names: list[str],
    local: tuple[Trust, ...],
    numbers: tuple[tuple[str, float], ...],
) -> Answer:
    """Choose between the Gaussian and the moved draws."""
    varies = (np.ptp(read, axis=0) > 0) & (np.ptp(moved.read, axis=0) > 0)
    values = moved.read[:, varies]
    sd = values.std(axis=0)
    shift = (values.mean(axis=0) - read[:, varies].mean(axis=0)) / sd
    change = np.log(sd / read[:, varies].std(axis=0))
    error = 1.0 / np.sqrt(moved.effective)
    slack = -float(ndtri(thresholds.DOUBT / max(4 * len(shift), 1))) * error
    numbers = (
        ("largest shift of a mean, in posterior sds", float(shift[np.argmax(np.abs(shift))])),
        ("largest ratio of an sd, exact to approximate", float(np.exp(change[np.argmax(np.abs(change))]))),
        ("Pareto k of the check", weighed.shape.k if weighed.shape else np.inf),
        ("effective draws of the check", weighed.shape.effective if weighed.shape else 0.0),
        ("transitions of the short chains", float(moved.transitions)),
        ("rank memory of the chains", moved.mixing.memory),
        ("drift of the chains, in sds", moved.mixing.drift),
        ("energy covered by a transition", moved.mixing.energy),
        ("share of stuck chains", moved.mixing.stuck),
        ("share of trajectories that went wrong", moved.mixing.rough),
        *(() if moved.change is None else (("change by finer steps, in sds", moved.change),)),
        *numbers,
    )
    # draws that have settled are at hand: the Gaussian has to be right, not merely not clearly wrong, by as much less
    # than is allowed as the draws err. Among very many numbers the largest difference is chance, beyond that too
    right = bool(
        np.all(np.abs(shift) < max(thresholds.SHIFT - error, slack))
        and np.all(np.abs(change) < max(thresholds.CHANGE - error, slack))
    )
    if moved.settled and right and method != "psis":
        text = (
            f"held against {moved.count:,} short chains of the exact posterior, no mean is off by more than "
            f"{max(np.max(np.abs(shift)), 0.01):.2f} posterior sds and no sd by more than "
            f"{100 * max(np.max(np.abs(np.expm1(-change))), 0.01):.0f}%, with an error of {error:.2f} sds"
        )
        return Answer("gaussian", gaussian, None, (Trust(GOOD, (text,), numbers), *local))
    differ = differences(_only(names, varies), shift, change)
    if method == "gaussian":
        level = REFUSE if np.max(np.abs(shift)) > thresholds.FAR_SHIFT else CARE
        text = f"{differ}; the next rung is method='psis', draws that are corrected"
        return Answer("gaussian", gaussian, None, (Trust(level, (text,), numbers), *local))
    if moved.settled:
        text = (
            f"the Gaussian is corrected ({differ}) by {moved.count:,} short chains, which have forgotten where they "
            f"started; their draws are worth about {moved.effective:,.0f} independent ones"
        )
        verdict = Trust(GOOD, (text,), numbers)
    else:
        text = (
            f"neither the Gaussian nor draws that were moved from it are sure: {_trouble(moved)}. Reparametrise, e.g. "
            f"not centred in place of centred; {NEXT}"
        )
        verdict = Trust(CARE, (text,), numbers)
    return Answer("psis", gaussian, moved.read, (verdict, *local), moved.effective)


def _only(names: list[str], varies: np.ndarray) -> list[str]:
    return [name for name, flag in zip(names, varies, strict=True) if flag]


def differences(names: list[str], shift: np.ndarray, change: np.ndarray) -> str:
    """Say which mean and which sd are off most."""
    moved, changed = int(np.argmax(np.abs(shift))), int(np.argmax(np.abs(change)))
    return (
        f"the mean of {names[moved]} should be about {abs(shift[moved]):.2f} posterior sds "
        f"{'higher' if shift[moved] > 0 else 'lower'}, the sd of {names[changed]} {np.exp(change[changed]):.2f} times "
        "as large"
    )


def _trouble(moved: Moved) -> str:
    found = moved.mixing
    parts = {
        f"{100 * found.stuck:.0f}% of the chains are stuck": found.stuck >= moved.limits.stuck,
        f"energy mixes slowly ({found.energy:.2f}), as in a funnel or with heavy tails": (
            found.energy <= moved.limits.energy
        ),
        f"means or sds change by {moved.change or 0.0:.2f} sds with finer steps, as in the neck of a funnel": (
            moved.change is not None and not moved.steady
        ),
        f"{100 * found.rough:.0f}% of the trajectories went wrong, where the density is too steep": (
            moved.change is None and not moved.steady
        ),
        f"means or sds still drift by {found.drift:.2f} sds": found.drift >= moved.limits.drift,
        f"chains remember where they were (rank correlation {found.memory:.2f})": found.memory >= moved.limits.memory,
    }
    return ", ".join(text for text, true in parts.items() if true) or "the chains have not settled"


def local_evidence(rivals: tuple[Rival, ...]) -> tuple[Trust, ...]:
    """Say that only the surroundings of one mode were seen, and which others were met."""
    found = [Trust(GOOD, (ONE_MODE,))]
    for rival in rivals:
        text = (
            f"a climb from far away ended at another mode, {rival.distance:.1f} posterior sds away, with a bound "
            f"{rival.lower:.1f} nats lower"
        )
        if rival.lower < HEAVY:
            share = 100 / (1 + np.exp(rival.lower))
            text += f": it holds about {share:.0f}% of the mass, which the answer leaves out; {NEXT}"
        found.append(Trust(CARE if rival.lower < HEAVY else GOOD, (text,)))
    return tuple(found)
