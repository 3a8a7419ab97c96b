"""How far the fit of a generalized linear model can be trusted: its Gaussian shape, and what the data leave open.

Draws from q are weighted by p/q; how far that moves means and sds is how far q is from the posterior
(`natvi.judge.shape`). Collinear columns and separated responses leave coefficients to the prior: the answer is finite,
but the reader should know which columns they are.
"""

from typing import TYPE_CHECKING

import numpy as np

from natvi.families.parts import part_slices
from natvi.judge import thresholds, words
from natvi.judge.shape import Shape, look_closer
from natvi.judge.trust import CARE, REFUSE, Trust
from natvi.models.linear.log_joint import log_joint
from natvi.models.regression.rows import Rows
from natvi.models.regression.separation import column_words, separated

if TYPE_CHECKING:
    from natvi.models.linear.posterior import GlmFit

LEAST_DRAWS, CELL_BUDGET = 128, 2e8  # draws times rows
RANK = 1e-9  # relative size of what is left of a column once the others are taken out
BLOCK_ROWS = 50_000
SHOWN = 4


def check_fit(fit: "GlmFit") -> tuple[Trust, ...]:
    """Return what the checks found."""
    if not (np.all(np.isfinite(fit.mean)) and np.all(np.isfinite(fit.factor))):
        return (Trust(REFUSE, ("the Gaussian is not finite",)),)
    if fit.rows is None:
        return ()
    return (judge_shape(fit, measure_shape(fit, fit.rows)), *judge_data(fit))


def judge_data(fit: "GlmFit") -> tuple[Trust, ...]:
    """Return what the data leave open: columns that repeat each other, responses that are separated."""
    if fit.rows is None:
        return ()
    slices = [at for at, _ in part_slices(fit.family, len(fit.names))]
    columns = [reason for at in slices for reason in _judge_columns(fit.rows.X[:, at], fit.names[at])]
    found = [*columns, *separated(fit.rows.X, fit.rows.y, fit.names, fit.family)]
    return tuple(Trust(CARE, (reason,)) for reason in found)


# --- the shape -----------------------------------------------------------------------------------------------


def measure_shape(fit: "GlmFit", rows: Rows) -> Shape | None:
    """Draw from q, weight by p/q, and look at what changes."""
    most = int(np.clip(CELL_BUDGET / len(rows.y), LEAST_DRAWS, thresholds.MOST_DRAWS))

    def log_density(theta: np.ndarray) -> np.ndarray:
        return log_joint(fit.family, fit.prior, rows, theta)

    return look_closer(log_density, fit.mean, fit.factor, fit.readings, fit.directions(), most)


def judge_shape(fit: "GlmFit", shape: Shape | None) -> Trust:
    """Return the verdict on the Gaussian."""
    cure = "the posterior is not a Gaussian, and method='auto' or 'psis' corrects it by weighted draws"
    if fit.is_diagonal:
        cure = "independent coefficients miss correlations; try structure='dense'"
    return words.judge_shape(shape, fit.table_names, cure)


# --- collinear columns ---------------------------------------------------------------------------------------


def _judge_columns(X: np.ndarray, names: tuple[str, ...]) -> list[str]:
    sizes = np.sqrt(np.einsum("ij,ij->j", X, X))
    reasons = []
    empty = [name for name, size in zip(names, sizes, strict=True) if size == 0]
    if empty:
        words = "is zero" if len(empty) == 1 else "are zero"
        theirs = "its coefficient is" if len(empty) == 1 else "their coefficients are"
        reasons.append(f"{column_words(empty)} {words} in every row: {theirs} known through the prior alone")
    kept = np.flatnonzero(sizes > 0)
    if X.shape[1] > X.shape[0] and len(kept):
        reasons.append(
            f"{X.shape[0]:,} rows cannot determine {X.shape[1]:,} coefficients: the prior decides what they leave open"
        )
        return reasons
    groups = collinear_groups(X[:, kept] / sizes[kept])
    named = [[names[kept[j]] for j in group] for group in groups]
    reasons += [
        f"{column_words(group)} are collinear: the prior alone tells their coefficients apart"
        for group in named[:SHOWN]
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
    import scipy.linalg  # takes time to import

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
