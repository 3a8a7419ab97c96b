"""Cross-validation that leaves out whole groups of rows."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from natvi.metrics.loo import leave_rows_out
from natvi.models.regression.criticism import Loo


def leave_blocks_out(
    values: Float[np.ndarray, "s b"], log_ratios: Float[np.ndarray, " s"] | None, cause: str = ""
) -> Loo:
    """Return cross-validation by Pareto-smoothed importance sampling, a block of rows at a time.

    Args:
        values: The log-likelihood of every block under every draw.
        log_ratios: log p - log q of the draws, where they come from q and not from the posterior.
        cause: Why leaving a block out may change much, for the warning.
    """
    num_draws, num_blocks = values.shape
    found = leave_rows_out(lambda own: values[:, own].T.copy(), num_blocks, num_draws, log_ratios)
    bad = int(np.sum(~(found.k < 0.7) & (found.effective < 0.5 * num_draws)))
    warning = ""
    if bad:
        warning = (
            f"{bad:,} of {num_blocks:,} groups have a Pareto k above 0.7: leaving one of them out changes much{cause}, "
            "and their part of elpd is not reliable; fit without them: update(data=...), log_likelihood(data=...)"
        )
    se = float(np.sqrt(num_blocks * np.var(found.elpd)))
    p_loo = float(np.sum(found.lppd - found.elpd))
    return Loo(float(found.elpd.sum()), se, p_loo, found.elpd, found.k, found.effective, warning, "groups")


def block_codes(labels: Any, num_rows: int) -> tuple[np.ndarray, int]:
    """Return the block of every row and the number of blocks, or say what is wrong with the labels."""
    labels = pd.Series(np.asarray(labels)) if not isinstance(labels, pd.Series) else labels
    if len(labels) != num_rows:
        raise ValueError(f"by must hold a label for each of the {num_rows:,} rows in use; got {len(labels):,}.")
    if labels.isna().any():
        raise ValueError(f"by holds {int(labels.isna().sum())} missing labels. Fill them in.")
    codes, known = pd.factorize(labels)
    if len(known) < 2:
        raise ValueError("by has one group only; leaving it out leaves no data. Name a column with several groups.")
    return codes, len(known)


def sum_blocks(each: Float[np.ndarray, "s n"], codes: np.ndarray, num_blocks: int) -> Float[np.ndarray, "s b"]:
    """Return sums over the columns of every block."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(num_blocks))
    return np.add.reduceat(each[:, order], starts, axis=1)
