"""The rows of a generalized linear model as arrays, read from a formula and a table or from arrays."""

from typing import Any

import numpy as np
import pandas as pd

from natvi.formula.design import Design
from natvi.formula.frames import as_frame
from natvi.formula.weights import weights_of_rows
from natvi.models.regression.response import encode_response, refuse_overflow
from natvi.models.regression.rows import Covariates, Rows, gather

MISSING_NOTE = "{:,} of {:,} rows left out: missing values (missing='error' refuses them)"


def rows_of_design(design: Design, family: str) -> tuple[Rows, tuple[str, ...]]:
    """Return the rows of a formula's design, and notes for the summary."""
    refuse_overflow(design.X, design.fixed_names)
    response = encode_response(
        design.response, design.response_name, family, design.trials, may_be_equal=len(design.response) == 1
    )
    notes = [*response.notes, *design.notes]
    if design.num_missing:
        notes.append(MISSING_NOTE.format(design.num_missing, design.num_missing + len(design.X)))
    offset = design.offset if design.columns.offset else None
    return gather(Covariates(design.X, offset), response, design.weights), tuple(notes)


def rows_of_arrays(
    X: np.ndarray, y: Any, family: str, offset: Any, weights: Any, trials: Any, learning: bool = True
) -> tuple[Rows, tuple[str, ...]]:
    """Return the rows of plain arrays, and notes for the summary; rows of weight zero are left out.

    Raises:
        ValueError: For lengths that differ, values that are missing or infinite, or responses outside the family.
    """
    n = len(X)
    response, offset, trials = (
        _column(values, name, n) for values, name in ((y, "y"), (offset, "offset"), (trials, "trials"))
    )
    if response is None:
        raise ValueError("y is missing: give the response, one value for each row of X.")
    notes: list[str] = []
    used = None if weights is None else weights_of_rows(weights, pd.RangeIndex(n))
    if used is not None:
        if np.isnan(used).any():
            raise ValueError(
                f"{int(np.isnan(used).sum())} of {n} weights are missing. Give every row a weight, 0 to skip it."
            )
        keep = used > 0.0
        if not keep.all():
            notes.append(f"{int((~keep).sum()):,} of {n:,} rows left out: weight zero")
            X, response, used = X[keep], response[keep], used[keep]
            offset, trials = (None if a is None else a[keep] for a in (offset, trials))
    for name, values in (("offset", offset), ("trials", trials)):
        if values is not None and not np.all(np.isfinite(values)):
            raise ValueError(f"the {name} holds values that are missing or infinite. Remove those rows.")
    column = pd.Series(response)
    if column.isna().any():
        raise ValueError(f"y has {int(column.isna().sum())} missing value(s). Drop those rows of X and y first.")
    offset, trials = (None if a is None else a.astype(np.float64) for a in (offset, trials))
    encoded = encode_response(column, "y", family, trials, may_be_equal=not learning or len(column) == 1)
    rows = gather(Covariates(X, offset), encoded, used)
    return rows, (*encoded.notes, *notes)


def read_matrix(X: Any, names: Any = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return covariates in float64, without a copy where they are that already, and their names.

    Args:
        X: An array or a data frame `(n, p)`.
        names: One for each column; by default those of the frame, else x0, x1, ...

    Raises:
        ValueError: For anything but finite numbers in rows and columns.
    """
    X = as_frame(X) if hasattr(X, "columns") else X  # polars and other frames too
    frame_names = [str(name) for name in X.columns] if isinstance(X, pd.DataFrame) else None
    try:
        matrix = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X cannot be read as numbers ({error}). Code categories as columns of 0 and 1, or use natvi.glm with a "
            "formula, which does that."
        ) from error
    if matrix.ndim != 2 or matrix.shape[0] == 0:
        raise ValueError(f"X must have rows and columns, shape (n, p) with n of at least 1; got shape {matrix.shape}.")
    if not np.isfinite(matrix.sum()) and not np.all(np.isfinite(matrix)):
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise ValueError(
            f"X must be finite; row {row}, column {column} holds {matrix[row, column]}. Fill or drop such rows."
        )
    chosen = frame_names if names is None else [str(name) for name in names]
    if chosen is None:
        chosen = [f"x{j}" for j in range(matrix.shape[1])]
    if len(chosen) != matrix.shape[1] or len(set(chosen)) != len(chosen):
        raise ValueError(
            f"names must be different and one for each of the {matrix.shape[1]} columns of X; got {len(chosen)}, "
            f"{len(set(chosen))} of them different."
        )
    refuse_overflow(matrix, tuple(chosen))
    return matrix, tuple(chosen)


def _column(values: Any, name: str, n: int) -> np.ndarray | None:
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n,):
        raise ValueError(f"{name} must hold one value for each of the {n} rows of X; got shape {array.shape}.")
    return array
