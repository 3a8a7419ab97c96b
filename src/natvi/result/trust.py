"""How far an answer can be trusted, and why."""

from typing import NamedTuple

from natvi.result.outcome import ADVICE
from natvi.run import Outcome

GOOD, CARE, REFUSE = "good", "use with care", "do not use"


class Trust(NamedTuple):
    """A verdict and the reasons for it, the weightiest first."""

    level: str
    reasons: tuple[str, ...]


def combine(outcome: Outcome, concerns: tuple[Trust, ...]) -> Trust:
    """Join the outcome of the fit with what the checks found.

    Example:
        >>> combine(Outcome.CONVERGED, (Trust("good", ("checked",)),)).level
        'good'
    """
    if outcome is Outcome.CONVERGED:
        start = Trust(GOOD, ("converged",))
    elif outcome in (Outcome.MAX_STEPS, Outcome.INTERRUPTED, Outcome.STALLED):
        start = Trust(CARE, (ADVICE[outcome],))
    else:
        start = Trust(REFUSE, (ADVICE[outcome],))
    order = (REFUSE, CARE, GOOD)
    parts = sorted((start, *concerns), key=lambda part: order.index(part.level))
    return Trust(parts[0].level, tuple(reason for part in parts for reason in part.reasons))
