"""A verdict: one of three levels, its reasons in plain words, and the numbers behind them."""

from typing import NamedTuple

GOOD, CARE, REFUSE = "good", "use with care", "do not use"


class Trust(NamedTuple):
    """A verdict on how well the posterior is approximated.

    Attributes:
        level: GOOD, CARE or REFUSE.
        reasons: Plain sentences, the weightiest first.
        numbers: What was measured, by name; shown on request only.
    """

    level: str
    reasons: tuple[str, ...]
    numbers: tuple[tuple[str, float], ...] = ()
