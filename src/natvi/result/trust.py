"""How far an answer can be trusted, and why."""

from natvi.judge.trust import CARE, GOOD, REFUSE, Trust
from natvi.result.outcome import ADVICE
from natvi.run import Outcome

__all__ = ["CARE", "GOOD", "REFUSE", "Trust", "combine"]


def combine(outcome: Outcome, concerns: tuple[Trust, ...]) -> Trust:
    """Join the outcome of the fit with what the checks found: the worst comes first, but for a fit that did not end.

    What is wrong with an answer that was not reached is read after the words that say so.

    Example:
        >>> combine(Outcome.CONVERGED, (Trust("good", ("checked",)),)).level
        'good'
        >>> combine(Outcome.MAX_STEPS, (Trust("do not use", ("far off",)),)).reasons[0][:14]
        'The step limit'
    """
    if outcome is Outcome.CONVERGED:
        start = Trust(GOOD, ("converged",))
    elif outcome in (Outcome.MAX_STEPS, Outcome.STOPPED_EARLY, Outcome.INTERRUPTED, Outcome.STALLED):
        start = Trust(CARE, (ADVICE[outcome],))
    else:
        start = Trust(REFUSE, (ADVICE[outcome],))
    order = (REFUSE, CARE, GOOD)
    parts = sorted((start, *concerns), key=lambda part: order.index(part.level))
    level = parts[0].level
    if outcome is not Outcome.CONVERGED:
        parts = [start, *(part for part in parts if part is not start)]
    reasons = tuple(reason for part in parts for reason in part.reasons)
    return Trust(level, reasons, tuple(number for part in parts for number in part.numbers))
