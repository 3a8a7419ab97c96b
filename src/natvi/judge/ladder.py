"""The ladder of `method="auto"`: an answer, the doubts about it, the next better method.

It climbs while there are doubts. Which there are is found by `auto.py` of each kind of model: a mean or an sd of the
Gaussian beyond the limits of `judge.thresholds`, seen by `judge.shape`.

    gva -> marginal                           models/mixed/auto.py
    gva -> integrated                         models/mixed/crossed/auto.py
    Gaussian -> importance-corrected draws    models/linear/auto.py

A log-density of the user chooses among answers that it has at hand, in `models/density/verdict.py`.

A rung is taken only if there is doubt about the answer at hand; a rung that breaks leaves that answer, with a word.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from natvi.judge.trust import GOOD, Trust

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Stage(Generic[Answer]):
    """An answer with what is known about it.

    Attributes:
        answer: Whatever the method gives.
        concerns: The verdicts on it.
        doubts: Why a better method is wanted; empty where the answer can stay.
    """

    answer: Answer
    concerns: tuple[Trust, ...]
    doubts: tuple[str, ...] = ()


class BrokenRungError(Exception):
    """The next method cannot be used, or gave nothing; the words say why."""


Rung = Callable[[Stage[Answer]], Stage[Answer]]


def doubts_in(concerns: Sequence[Trust]) -> tuple[str, ...]:
    """Return the reasons of all verdicts that are not good.

    Example:
        >>> doubts_in([Trust("good", ("a",)), Trust("use with care", ("b", "c"))])
        ('b', 'c')
    """
    return tuple(reason for concern in concerns if concern.level != GOOD for reason in concern.reasons)


def climb(first: Stage[Answer], rungs: Sequence[Rung], stay: Callable[[Stage[Answer], str], Stage[Answer]]) -> Stage:
    """Go up while there is doubt.

    Args:
        first: The answer of the cheapest method.
        rungs: The better methods, in order; each takes the stage below it.
        stay: What becomes of a stage when the next rung breaks, given the words of the trouble.

    Returns:
        The last stage that was reached.
    """
    found = first
    for rung in rungs:
        if not found.doubts:
            break
        try:
            found = rung(found)
        except BrokenRungError as trouble:
            return stay(found, str(trouble))
    return found
