"""Separated responses: columns that tell failures from successes without error, so that the prior alone bounds them."""

import numpy as np

from natvi.families.table import Family
from natvi.formula.raw_columns import listing

PROGRAM_CELLS, PROGRAM_SECONDS = 2_000_000, 3.0  # of the linear program that looks for separation
NOTHING = 1e-6  # times the root of the number of rows: a sum that is zero
NEWTON_STEPS = 12
ROUNDING = 1e-14
SHOWN = 4


def separated(X: np.ndarray, y: np.ndarray, names: tuple[str, ...], family: Family) -> list[str]:
    """Return a sentence about columns that separate the responses, by themselves or together; empty if none do."""
    if family.name not in ("bernoulli", "binomial"):
        return []
    single = separating_columns(X, y)
    if single:
        found = [names[j] for j in single]
        words, theirs = (
            ("separates", "its coefficient is") if len(found) == 1 else ("separate", "their coefficients are")
        )
        return [f"{column_words(found)} {words} the responses: {theirs} bounded by the prior alone"]
    together = separating_direction(X, y)
    if together is None:
        return []
    parts = np.abs(together) * np.sqrt(np.mean(X**2, axis=0))
    largest = [int(j) for j in np.argsort(-parts) if parts[j] > 1e-6 * parts.max()]
    found = [names[j] for j in largest]
    return [f"{column_words(found)} together separate the responses: the prior alone bounds their coefficients"]


def separating_columns(X: np.ndarray, y: np.ndarray) -> list[int]:
    """Return columns that by themselves, with a threshold, tell responses of 0 from responses of 1.

    A column separates where no x of a 0 lies above an x of a 1, or the reverse; touching at one value, as an indicator
    of a level whose responses are all equal does, counts. Without a constant column the threshold is 0.

    Example:
        >>> X = np.column_stack([np.ones(4), [1.0, 2.0, 3.0, 4.0], [0.3, 0.1, 0.4, 0.2]])
        >>> separating_columns(X, np.array([0.0, 0.0, 1.0, 1.0]))
        [1]
    """
    # a proportion strictly between is both a failure and a success
    failed, succeeded = X[y < 1], X[y > 0]
    if len(failed) == 0 or len(succeeded) == 0:
        return []
    constant = np.all(X == X[0], axis=0)
    low0, high0, low1, high1 = failed.min(0), failed.max(0), succeeded.min(0), succeeded.max(0)
    if (constant & (X[0] != 0)).any():
        apart = (high0 <= low1) | (high1 <= low0)
    else:
        apart = ((high0 <= 0) & (low1 >= 0)) | ((high1 <= 0) & (low0 >= 0))
    return [int(j) for j in np.flatnonzero(apart & ~constant)]


def separating_direction(X: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Return coefficients b with x'b >= 0 for every 1 and x'b <= 0 for every 0, not all zero; None if there are none.

    A linear program: maximise the sum of the left sides within |b| <= 1. None too where it would take long.
    """
    if X.size > PROGRAM_CELLS:
        return None
    sizes = np.sqrt(np.einsum("ij,ij->j", X, X) / len(X))
    scaled = X / np.where(sizes > 0, sizes, 1.0)
    sides = np.concatenate([scaled[y > 0], -scaled[y < 1]])
    if most_apart(sides) <= NOTHING * np.sqrt(len(X)):
        return None
    from scipy.optimize import linprog  # takes time to import

    answer = linprog(
        -sides.sum(axis=0),
        A_ub=-sides,
        b_ub=np.zeros(len(sides)),
        bounds=(-1.0, 1.0),
        method="highs",
        options={"time_limit": PROGRAM_SECONDS},
    )
    if answer.status != 0 or -answer.fun <= NOTHING * np.sqrt(len(X)):
        return None
    return answer.x / np.where(sizes > 0, sizes, 1.0)


def most_apart(sides: np.ndarray) -> float:
    """Return what the sum of R b cannot exceed where R b >= 0 and |b| <= 1; infinity if that is not found out soon.

    Positive weights with R'w = 0 leave nothing: sum(R b) <= w'R b / min(w). The residuals of a logistic regression are
    such weights, w = 1 / (1 + exp(R b)) at its maximum, and a few Newton steps before it they are nearly; one more step
    of the weights along their slope makes R'w zero but for rounding.

    Example:
        >>> most_apart(np.array([[1.0], [-2.0], [0.5]])) < 1e-12, most_apart(np.array([[1.0], [2.0]]))
        (True, inf)
    """
    b = np.zeros(sides.shape[1])
    for _ in range(NEWTON_STEPS):
        with np.errstate(over="ignore"):
            weights = 1.0 / (1.0 + np.exp(sides @ b))
        bend = weights * (1.0 - weights)
        step = np.linalg.lstsq(sides.T @ (bend[:, None] * sides), sides.T @ weights, rcond=None)[0]
        balanced = weights - bend * (sides @ step)
        least = balanced.min(initial=1.0)
        if least > 0.0:
            left_over = np.abs(sides.T @ balanced).sum() + ROUNDING * (np.abs(sides).T @ balanced).sum()
            return float(left_over / least)
        b += step
        if not np.isfinite(b).all():
            break
    return float("inf")


def column_words(names: list[str]) -> str:
    """Return names of columns in a sentence.

    Example:
        >>> column_words(["x"])
        "column 'x'"
    """
    noun = "column" if len(names) == 1 else "columns"
    return f"{noun} {listing(names, SHOWN)}"
