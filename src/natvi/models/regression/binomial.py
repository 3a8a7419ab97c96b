"""Successes and trials of a binomial response: their checks, and the constant of their likelihood."""

import numpy as np
import pandas as pd

from natvi.formula.raw_columns import first_row
from natvi.special import betaln

_ROUNDING = 1e-8  # relative: 0.7 * 10 is a whole number for everybody but the computer


def check_trials(
    successes: np.ndarray, trials: np.ndarray, name: str, index: pd.Index
) -> tuple[np.ndarray, np.ndarray]:
    """Return successes and trials as whole numbers with 0 <= y <= n and n >= 1.

    Args:
        successes: y of every row, finite.
        trials: n of every row.
        name: The left side of the formula, such as `p(y, n)`, for messages.
        index: Labels of the rows, for messages.

    Raises:
        ValueError: If they are anything else; says how many rows, and shows the first.
    """
    if trials.shape != successes.shape:
        raise ValueError(f"{name!r} has {len(trials)} numbers of trials for {len(successes)} rows. Give one for each.")
    y, n = np.round(successes), np.round(trials)
    order = "The second number counts all trials, successes and failures"
    if np.all(y >= n) and np.any(y > n):
        order = "Are they in the wrong order? Successes come first, then trials"
    broken = "Give counts; for rates there is no binomial response"
    checks = (
        (~np.isfinite(trials), "trials that are not finite", "Remove or replace them"),
        (~_whole(trials, n), "trials that are not whole numbers", broken),
        (n < 0, "negative trials", "Check the column of trials"),
        (n == 0, "no trials, which says nothing about the response", "Leave them out of the data"),
        (~_whole(successes, y), "successes that are not whole numbers", broken),
        (y < 0, "negative successes", "Check the column of successes"),
        (y > n, "more successes than trials", order),
    )
    for wrong, what, cure in checks:
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(
                f"{int(wrong.sum())} of {len(y)} rows of {name!r} have {what}, e.g. row {first_row(index, wrong)} with "
                f"{successes[at]:g} successes of {trials[at]:g} trials. {cure}."
            )
    return y, n


def _whole(values: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.abs(values - rounded) <= _ROUNDING * np.maximum(1.0, np.abs(rounded))


def log_choose(n: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return log C(n, y) = -log(n + 1) - log B(n - y + 1, y + 1), accurate for large n too."""
    return -np.log1p(n) - betaln(n - y + 1.0, y + 1.0)
