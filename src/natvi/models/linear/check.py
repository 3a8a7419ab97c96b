"""How far the fit of a generalized linear model can be trusted: its Gaussian shape, and what the data leave open.

The check is made when somebody looks at `trust`. Draws from q are weighted by p/q; how far that moves means and sds is
how far q is from the posterior. The tail of the weights, their Pareto k, would not do alone: it is heavy also where the
bulk of q fits and only its tail does not, as in logistic regression with few rows. Collinear columns and separated
responses leave coefficients to the prior: the answer is finite, but the reader should know which columns they are.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

from natvi.formula.raw_columns import listing
from natvi.metrics.psis import smooth_weights
from natvi.models.linear.criticism import log_ratios
from natvi.models.linear.rows import GlmRows
from natvi.result.trust import CARE, GOOD, REFUSE, Trust

if TYPE_CHECKING:
    from natvi.models.linear.posterior import GlmFit

MOST_DRAWS, LEAST_DRAWS, CELL_BUDGET = 2000, 400, 2e8  # draws times rows
CARE_K = 0.7
SMALL_SHIFT, SMALL_CHANGE, LARGE_SHIFT = 0.25, 0.25, 1.0  # in posterior sds, in logarithms of an sd
RANK = 1e-9  # relative size of what is left of a column once the others are taken out
BLOCK_ROWS = 50_000
PROGRAM_CELLS, PROGRAM_SECONDS = 2_000_000, 3.0  # of the linear program that looks for separation
SHOWN = 4


def check_fit(fit: "GlmFit") -> tuple[Trust, ...]:
    """Return what the checks found."""
    if not (np.all(np.isfinite(fit.mean)) and np.all(np.isfinite(fit.factor))):
        return (Trust(REFUSE, ("the Gaussian is not finite",)),)
    if fit.rows is None:
        return ()
    found = [*_judge_columns(fit.rows.X, fit.names), *_judge_separation(fit.rows, fit)]
    return (_judge_shape(fit, fit.rows), *(Trust(CARE, (reason,)) for reason in found))


# --- the shape -----------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """What importance weights p/q say about q.

    Attributes:
        shift: How far reweighting moves each mean, in posterior sds.
        ratio: How many times as large it makes each sd.
        k: The Pareto k of the weights; from 0.7 on the two above are too small rather than too large.
        effective: How many equally weighted draws the weighted ones are worth.
        divergence: An estimate of KL(q | p), log p(y) minus the ELBO.
    """

    shift: np.ndarray
    ratio: np.ndarray
    k: float
    effective: float
    divergence: float


def measure_shape(fit: "GlmFit", rows: GlmRows, num_draws: int) -> Shape:
    """Draw from q, weight by p/q, and look at what changes."""
    theta = fit.draws(num_draws, seed=0)
    ratios = log_ratios(fit, rows, theta)
    weights, k, effective = smooth_weights(ratios)
    mean = weights @ theta
    sd = np.sqrt(weights @ (theta - mean) ** 2)
    divergence = float(np.log(np.mean(np.exp(ratios - ratios.mean()))))
    return Shape((mean - fit.mean) / fit.sds, sd / fit.sds, k, effective, divergence)


def _judge_shape(fit: "GlmFit", rows: GlmRows) -> Trust:
    num_draws = int(np.clip(CELL_BUDGET / len(rows.y), LEAST_DRAWS, MOST_DRAWS))
    shape = measure_shape(fit, rows, num_draws)
    names = [*fit.names, *([] if fit.dispersion_name is None else [fit.dispersion_name])]
    if not (np.all(np.isfinite(shape.shift)) and np.isfinite(shape.k)):
        return Trust(CARE, ("the check against the exact posterior did not give a finite answer",))
    moved, changed = int(np.argmax(np.abs(shape.shift))), int(np.argmax(np.abs(np.log(shape.ratio))))
    shift, change = float(shape.shift[moved]), float(shape.ratio[changed])
    head = f"reweighting {num_draws:,} draws towards the exact posterior"
    tail = f"(Pareto k {shape.k:.2f})"
    # the noise of a mean and of an sd, with some room for the largest of several
    noise = 4.0 / np.sqrt(shape.effective)
    close = abs(shift) <= SMALL_SHIFT + noise and abs(np.log(change)) <= SMALL_CHANGE + noise
    if close and (shape.k < CARE_K or shape.effective > 0.5 * num_draws):
        words = f"would move no mean by more than {abs(shift):.2f} sds and change no sd by more than"
        return Trust(GOOD, (f"{head} {words} {100 * abs(np.log(change)):.0f}% {tail}",))
    words = (
        f"would move {names[moved]} by {shift:+.2f} sds and make the sd of {names[changed]} {change:.2f} times as large"
    )
    far = shape.k >= CARE_K and (shape.divergence > max(1.0, len(names) / 20) or abs(shift) > LARGE_SHIFT)
    if fit.is_diagonal:
        return Trust(
            CARE, (f"{head} {words} {tail}: independent coefficients miss correlations; try structure='dense'",)
        )
    if far:
        return Trust(
            REFUSE, (f"{head} {words} or more {tail}: the posterior is far from a Gaussian; give a tighter prior",)
        )
    return Trust(CARE, (f"{head} {words} {tail}: the posterior departs from a Gaussian",))


# --- collinear columns ---------------------------------------------------------------------------------------


def _judge_columns(X: np.ndarray, names: tuple[str, ...]) -> list[str]:
    sizes = np.sqrt(np.einsum("ij,ij->j", X, X))
    reasons = []
    empty = [name for name, size in zip(names, sizes, strict=True) if size == 0]
    if empty:
        words = "is zero" if len(empty) == 1 else "are zero"
        theirs = "its coefficient is" if len(empty) == 1 else "their coefficients are"
        reasons.append(f"{_columns(empty)} {words} in every row: {theirs} known through the prior alone")
    kept = np.flatnonzero(sizes > 0)
    if X.shape[1] > X.shape[0] and len(kept):
        reasons.append(
            f"{X.shape[0]:,} rows cannot determine {X.shape[1]:,} coefficients: the prior decides what they leave open"
        )
        return reasons
    groups = collinear_groups(X[:, kept] / sizes[kept])
    named = [[names[kept[j]] for j in group] for group in groups]
    reasons += [
        f"{_columns(group)} are collinear: the prior alone tells their coefficients apart" for group in named[:SHOWN]
    ]
    if len(named) > SHOWN:
        reasons.append(f"{len(named) - SHOWN} more columns are linear combinations of others")
    return reasons


def collinear_groups(X: np.ndarray) -> list[list[int]]:
    """Return the columns of every linear dependence, by a rank-revealing QR factorisation.

    Args:
        X: Columns of unit length.

    Returns:
        For every column that is a combination of others, that column and those others, in order.

    Example:
        >>> collinear_groups(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0]]))
        [[0, 1, 2]]
    """
    if X.shape[1] < 2:
        return []
    R = np.zeros((0, X.shape[1]))
    for at in range(0, len(X), BLOCK_ROWS):
        R = np.linalg.qr(np.concatenate([R, X[at : at + BLOCK_ROWS]]), mode="r")
    R, order = map(np.asarray, scipy.linalg.qr(R, mode="r", pivoting=True))
    rank = int(np.sum(np.abs(np.diagonal(R)) > RANK * abs(R[0, 0])))
    # columns beyond the rank are R11^-1 R12 times those before it
    shares = scipy.linalg.solve_triangular(R[:rank, :rank], R[:rank, rank:])
    groups = []
    for k, share in enumerate(shares.T):
        groups.append(sorted([int(order[rank + k]), *(int(j) for j in order[:rank][np.abs(share) > 1e-6])]))
    return groups


# --- separated responses -------------------------------------------------------------------------------------


def _judge_separation(rows: GlmRows, fit: "GlmFit") -> list[str]:
    if fit.family.name not in ("bernoulli", "binomial"):
        return []
    single = separating_columns(rows.X, rows.y)
    if single:
        names = [fit.names[j] for j in single]
        words, theirs = (
            ("separates", "its coefficient is") if len(names) == 1 else ("separate", "their coefficients are")
        )
        return [f"{_columns(names)} {words} the responses: {theirs} bounded by the prior alone"]
    together = separating_direction(rows.X, rows.y)
    if together is None:
        return []
    parts = np.abs(together) * np.sqrt(np.mean(rows.X**2, axis=0))
    largest = [int(j) for j in np.argsort(-parts) if parts[j] > 1e-6 * parts.max()]
    names = [fit.names[j] for j in largest]
    return [f"{_columns(names)} together separate the responses: the prior alone bounds their coefficients"]


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
    answer = scipy.optimize.linprog(
        -sides.sum(axis=0),
        A_ub=-sides,
        b_ub=np.zeros(len(sides)),
        bounds=(-1.0, 1.0),
        method="highs",
        options={"time_limit": PROGRAM_SECONDS},
    )
    if answer.status != 0 or -answer.fun <= 1e-6 * np.sqrt(len(X)):
        return None
    return answer.x / np.where(sizes > 0, sizes, 1.0)


def _columns(names: list[str]) -> str:
    noun = "column" if len(names) == 1 else "columns"
    return f"{noun} {listing(names, SHOWN)}"
