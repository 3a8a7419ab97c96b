"""New rows of a generalized linear model that was fitted to arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from natvi.models.linear.rows import read_matrix, rows_of_arrays
from natvi.models.regression.rows import Covariates, Rows


def array_covariates(data: Any, names: tuple[str, ...], intercept: bool, has_offset: bool) -> Covariates:
    """Return columns and offset of new rows, given as X or as {"X": X, "offset": offset}.

    Args:
        data: What the user gave.
        names: Of the coefficients.
        intercept: Whether a column of ones stands before those of X.
        has_offset: Whether the fit had an offset, so that new rows need one.
    """
    parts = _parts(data)
    X = _matrix(parts["X"], names, intercept)
    offset = parts.get("offset")
    if (offset is None) == has_offset:
        came, cure = ("no offset", "Give") if has_offset else ("an offset", "Leave it out; give")
        raise ValueError(
            f"the new data has {came}, unlike the data of the fit. {cure} "
            + ("{'X': X, 'offset': offset}." if has_offset else "X alone.")
        )
    offset = None if offset is None else np.asarray(offset, dtype=np.float64)
    if offset is not None and offset.shape != (len(X),):
        raise ValueError(f"the offset must hold one number for each of the {len(X)} rows; got shape {offset.shape}.")
    return Covariates(X, offset)


def array_rows(data: Any, covariates: Covariates, family: str) -> Rows:
    """Return new rows with their responses, given as {"X": X, "y": y} with perhaps offset, weights and trials."""
    parts = _parts(data)
    if "y" not in parts:
        raise ValueError(
            "the responses are needed too: give data={'X': X, 'y': y}, with 'offset', 'weights', 'trials'."
        )
    extra = (covariates.offset, parts.get("weights"), parts.get("trials"))
    return rows_of_arrays(covariates.X, parts["y"], family, *extra, learning=False)[0]


def array_labels(data: Any) -> pd.Index:
    """Return the labels of new rows."""
    X = _parts(data)["X"]
    return X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(len(X))


def _parts(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, Mapping) and "X" in data else {"X": data}


def _matrix(X: Any, names: tuple[str, ...], intercept: bool) -> np.ndarray:
    names = names[1:] if intercept else names
    if isinstance(X, pd.DataFrame) and set(names) <= set(map(str, X.columns)):
        X = X.set_axis([str(name) for name in X.columns], axis=1)[list(names)]
    matrix, _ = read_matrix(X)
    if matrix.shape[1] != len(names):
        raise ValueError(
            f"the new rows have {matrix.shape[1]} columns, and the model was fitted to {len(names)}: "
            f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}. Give the same columns in the same order."
        )
    return np.column_stack([np.ones(len(matrix)), matrix]) if intercept else matrix
