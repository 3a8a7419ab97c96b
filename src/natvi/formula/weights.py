"""Weights of rows: a column or an array, checked before rows are dropped, so that both stay aligned."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from natvi.formula.expressions import Expression
from natvi.formula.raw_columns import Array, column_kind, first_row, read_column


class RowWeights(NamedTuple):
    """The weight of every row of the data, NaN where it is missing.

    Attributes:
        values: Finite and non-negative, or NaN; shape (rows,).
        name: The column, or `"weights"` for an array.
        expression: Reads the column for new data; None for an array.
    """

    values: Array
    name: str
    expression: Expression | None


def read_weights(weights: Any, frame: pd.DataFrame) -> RowWeights | None:
    """Reads the weights of the rows of `frame`.

    A row of weight w counts w times: its log-likelihood is multiplied by w.

    Args:
        weights: None, the name of a column, or one number for every row.
        frame: The data, all of its rows.

    Returns:
        The weights, or None if none were given.

    Raises:
        ValueError: For weights that are of another length, not numbers, infinite, negative or all zero.
    """
    if weights is None:
        return None
    if isinstance(weights, str):
        values = _numbers(read_column(frame, weights), weights, frame.index)
        return RowWeights(values, weights, Expression("column", name=weights))
    return RowWeights(weights_of_rows(weights, frame.index), "weights", None)


def weights_of_rows(weights: Any, index: pd.Index) -> Array:
    """Reads one weight for each of the rows that `index` labels; raises `ValueError` as `read_weights` does."""
    return _numbers(_series(weights, index), "weights", index)


def _numbers(column: pd.Series, name: str, index: pd.Index) -> Array:
    if column_kind(column) != "numeric":
        raise ValueError(f"the weights {name!r} must be numbers, not text or categories. Use pd.to_numeric.")
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    _check(values, name, index)
    return values


def _series(weights: Any, index: pd.Index) -> pd.Series:
    needed = f"Give the name of a column, or an array with one number for each of the {len(index)} rows"
    if isinstance(weights, pd.Series):
        if len(weights) == len(index) and not weights.index.equals(index):
            raise ValueError(
                "the index of the weights differs from that of the data, so it is not clear which weight belongs to "
                "which row. Use weights.loc[data.index] to match labels, or weights.to_numpy() to go by position."
            )
        column = weights
    else:
        array = np.asarray(weights)
        if array.ndim != 1:
            raise ValueError(f"weights of {type(weights).__name__} with {array.ndim} axes. {needed}.")
        column = pd.Series(array)
    if len(column) != len(index):
        raise ValueError(
            f"there are {len(column)} weights for {len(index)} rows. {needed}, also for rows that will be dropped."
        )
    return column.rename("weights")


def _check(values: Array, name: str, index: pd.Index) -> None:
    for wrong, what in ((np.isinf(values), "infinite"), (values < 0.0, "negative")):
        if wrong.any():
            raise ValueError(
                f"{int(wrong.sum())} of {len(values)} weights in {name!r} are {what}, the first in row "
                f"{first_row(index, wrong)}. A weight says how often a row counts: finite, and zero or more."
            )
    if len(values) and not (values > 0.0).any():
        raise ValueError(f"none of the {len(values)} weights in {name!r} is positive. Give at least one row a weight.")
