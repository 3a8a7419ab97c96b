"""Leave-one-out cross-validation by Pareto-smoothed importance sampling, some rows at a time."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from natvi.metrics.psis import smooth_weights
from natvi.metrics.psis_rows import smooth_rows

CHUNK_CELLS = 400_000  # draws times rows at a time: 3 MB, which a processor's cache holds


class LooRows(NamedTuple):
    """What cross-validation says about every row.

    Attributes:
        elpd: The log predictive density of the row, given all others.
        lppd: That given all rows, with the same draws.
        k: The tail of the row's weights.
        effective: How many equally weighted draws its draws are worth.
    """

    elpd: np.ndarray
    lppd: np.ndarray
    k: np.ndarray
    effective: np.ndarray


def leave_rows_out(
    log_likelihood: Callable[[slice], np.ndarray], num_rows: int, num_draws: int, log_ratios: np.ndarray | None = None
) -> LooRows:
    """Return leave-one-out cross-validation of every row.

    Args:
        log_likelihood: From a slice of rows to the log-likelihood of these rows under every draw, `(rows, draws)`.
        num_rows: The number of rows.
        num_draws: The number of draws.
        log_ratios: log p - log q of draws from q, up to a constant; None for draws of the posterior.

    Returns:
        The parts of the rows.
    """
    parts = np.empty((4, num_rows))
    plain = None if log_ratios is None else smooth_weights(log_ratios).weights
    size = max(1, CHUNK_CELLS // num_draws)
    for at in range(0, num_rows, size):
        rows = slice(at, min(at + size, num_rows))
        each = log_likelihood(rows)
        peak = each.max(axis=1, keepdims=True)
        likelihood = np.exp(each - peak)
        found = smooth_rows(-each if log_ratios is None else log_ratios - each, likelihood)
        given_all = likelihood.mean(axis=1) if plain is None else likelihood @ plain
        with np.errstate(divide="ignore"):
            elpd, lppd = np.log(found.mean) + peak[:, 0], np.log(given_all) + peak[:, 0]
        parts[:, rows] = elpd, lppd, found.k, found.effective
    return LooRows(*parts)
