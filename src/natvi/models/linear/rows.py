"""The rows of a generalized linear model as arrays, read from a formula and a table or from arrays."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from natvi.formula.design import Design
from natvi.formula.frames import as_frame
from natvi.formula.weights import read_weights
from natvi.models.regression.response import Response, encode_response, refuse_overflow, row_weights

MISSING_NOTE = "{:,} of {:,} rows left out: missing values (missing='error' refuses them)"


class GlmRows(NamedTuple):
    """Covariates and responses of the rows in use, in float64.

    Attributes:
        X: Covariates `(n, p)`.
        y: Responses; for trials the proportion of successes.
        offset: A known part of the predictor, or None.
        weight: How often each row counts, weight times trials, or None.
        trials: Trials of every row of a binomial response, or None.
        constants: What the weighted log-density of each row lacks, log C(n, y) times the weight; or None.
    """

    X: np.ndarray
    y: np.ndarray
    offset: np.ndarray | None = None
    weight: np.ndarray | None = None
    trials: np.ndarray | None = None
    constants: np.ndarray | None = None

    @property
    def constant(self) -> float:
        """The sum of the constants."""
        return 0.0 if self.constants is None else float(np.sum(self.constants))


def rows_of_design(design: Design, family: str) -> tuple[GlmRows, tuple[str, ...]]:
    """Return the rows of a formula's design, and notes for the summary."""
    refuse_overflow(design.X, design.fixed_names)
    response = encode(design.response, design.response_name, family, design.trials)
    notes = [*response.notes, *design.notes]
    if design.num_missing:
        notes.append(MISSING_NOTE.format(design.num_missing, design.num_missing + len(design.X)))
    offset = design.offset if design.columns.offset else None
    return gather(design.X, response, offset, design.weights), tuple(notes)


def rows_of_arrays(
    X: np.ndarray, y: Any, family: str, offset: Any, weights: Any, trials: Any, learning: bool = True
) -> tuple[GlmRows, tuple[str, ...]]:
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
    given = None if weights is None else read_weights(weights, pd.DataFrame(index=range(n)))
    used = None if given is None else given.values
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
    encoded = encode(column, "y", family, None if trials is None else trials.astype(np.float64), learning)
    rows = gather(X, encoded, None if offset is None else offset.astype(np.float64), used)
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


def gather(X: np.ndarray, response: Response, offset: np.ndarray | None, weights: np.ndarray | None) -> GlmRows:
    """Put covariates and an encoded response together."""
    constants = response.log_choose
    if constants is not None and weights is not None:
        constants = weights * constants
    weight = row_weights(weights, response.trials)
    return GlmRows(X, response.values, offset, weight, response.trials, constants)


def encode(response: pd.Series, name: str, family: str, trials: np.ndarray | None, learning: bool = True) -> Response:
    """Encode the response; all rows may have the same value where there is one row only, or nothing to be learned."""
    numeric = pd.api.types.is_numeric_dtype(response) or pd.api.types.is_bool_dtype(response)
    if not numeric or (learning and len(response) > 1):
        return encode_response(response, name, family, trials)
    # one more row with another value, taken away again
    value = response.iloc[0]
    other = not value if isinstance(value, bool | np.bool_) else _another(float(value), family, trials)
    more = pd.Series([*response, other])
    encoded = encode_response(more, name, family, None if trials is None else np.append(trials, trials[0]))
    return Response(encoded.values[:-1], encoded.notes, *(None if a is None else a[:-1] for a in encoded[2:]))


def _another(value: float, family: str, trials: np.ndarray | None) -> float:
    if trials is not None:
        return value - 1.0 if value >= 1.0 else value + 1.0
    return 1.0 - value if family in ("bernoulli", "binomial") else value + 1.0
