"""The training table: complete rows, group numbers, and columns in the types that formulae reads well."""

from typing import Any

import numpy as np
import pandas as pd
from formulae.terms.call_resolver import LazyCall, LazyValue
from numpy.typing import NDArray

from natvi.formula.raw_columns import (
    column_kind,
    first_row,
    listing,
    missing_counts,
    plain_level,
    read_column,
    read_numeric,
)
from natvi.formula.terms import BASES, basis_width, column_names, components_of, role_of
from natvi.formula.weights import RowWeights

_CHECK_ROWS = 200
_MAX_BYTES = 4 * 2**30


def complete_rows(
    frame: pd.DataFrame, names: list[str], missing: str, weights: RowWeights | None = None
) -> tuple[pd.DataFrame, NDArray[np.int64], int]:
    """Returns the rows in use, their positions, and the number of rows with missing values.

    Rows of weight zero are out whatever else they hold, so their missing values do not count.
    """
    if missing not in ("drop", "error"):
        raise ValueError(f"missing must be 'drop' or 'error', not {missing!r}.")
    if len(frame) == 0:
        raise ValueError("the data has no rows. Give at least one observation.")
    absent = np.zeros(len(frame), dtype=bool)
    for name in names:
        absent |= read_column(frame, name).isna().to_numpy(dtype=bool)
    zero = np.zeros(len(frame), dtype=bool)
    if weights is not None:
        zero = weights.values == 0.0
        absent = (absent | np.isnan(weights.values)) & ~zero
    rows = np.flatnonzero(~absent & ~zero).astype(np.int64)
    num_missing = int(absent.sum())
    if len(rows) == len(frame):
        return frame, rows, 0
    if num_missing == 0:
        return frame[names].iloc[rows], rows, 0
    counted = missing_counts(frame.iloc[np.flatnonzero(~zero)], names)
    if weights is not None and (count := int(np.isnan(weights.values).sum())):
        counted[weights.name] = count
    counts = ", ".join(f"{name!r} {count}" for name, count in counted.items())
    if missing == "error":
        raise ValueError(
            f"{num_missing} of {len(frame)} rows have missing values: {counts}; the first is row "
            f"{first_row(frame.index, absent)}. Fill them, or drop the rows with missing='drop'."
        )
    if len(rows) == 0:
        raise ValueError(f"no row is without missing values ({counts}). Fill them or leave columns out.")
    return frame[names].iloc[rows], rows, num_missing


def group_rows(frame: pd.DataFrame, group: str | None) -> tuple[NDArray[np.int64] | None, NDArray[Any] | None]:
    """Returns the group number of every row and the label of every group."""
    if group is None:
        return None, None
    codes, labels = pd.factorize(read_column(frame, group), sort=True)
    if len(labels) < 2:
        raise ValueError(
            f"the grouping column {group!r} has one group only ({listing(labels)}); a random effect needs at "
            f"least two. Leave out the term (... | {group})."
        )
    return codes.astype(np.int64, copy=False), np.asarray(labels)


def prepare_table(frame: pd.DataFrame, roles: dict[str, set[str]]) -> tuple[pd.DataFrame, dict[str, NDArray[np.intp]]]:
    """Returns the columns in the types that formulae reads well, and for every factor a row of each level."""
    numeric = roles.get("numeric", set()) | roles.get("offset", set())
    factor, plain = roles.get("factor", set()), roles.get("plain", set())
    columns: dict[str, Any] = {}
    examples: dict[str, NDArray[np.intp]] = {}
    for name in sorted(column_names(roles)):
        column = read_column(frame, name)
        textual = column_kind(column) == "factor"
        values = _ordered(column) if textual or name in factor else None
        if values is not None:
            examples[name] = np.empty(len(values.categories), dtype=np.intp)
            examples[name][values.codes] = np.arange(len(frame))
        if values is None or name in numeric or (name in plain and not textual):
            values = read_numeric(frame, name)
            # Integers and booleans that are also factors keep their type, for the names of their levels.
            values = column.to_numpy(dtype=_native(column)) if name in factor else values
        columns[name] = values
    return pd.DataFrame(columns, index=range(len(frame)), copy=False), examples


def _native(column: pd.Series) -> type:
    if pd.api.types.is_bool_dtype(column.dtype):
        return np.bool_
    return np.int64 if pd.api.types.is_integer_dtype(column.dtype) else np.float64


def _ordered(column: pd.Series) -> pd.Categorical:
    """Returns a factor with its used levels only: categories in their order, all else sorted."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        used = column.cat.remove_unused_categories()
        codes, levels = used.cat.codes.to_numpy(), used.cat.categories
    else:
        codes, levels = pd.factorize(column, sort=True)
    return pd.Categorical.from_codes(codes, [plain_level(level) for level in levels], ordered=True)


def check_size(terms: list[Any], table: pd.DataFrame, examples: dict[str, NDArray[np.intp]], max_columns: int) -> None:
    """Refuses designs that are too wide before they are built; counts a column per set of levels."""
    worst, most, total = "", 1, 0
    for term in terms:
        width = 1
        for component in components_of(term):
            role, columns = role_of(component)
            name = min(columns, default="")
            if role == "factor" or (role == "plain" and isinstance(table[name].dtype, pd.CategoricalDtype)):
                levels = len(examples[name])
                width *= levels
                worst, most = (name, levels) if levels > most else (worst, most)
            elif role == "numeric" and getattr(component, "call", None) and component.call.callee in BASES:
                width *= int(basis_width(component.call))
            if role == "factor" and len(component.call.args) + len(component.call.kwargs) > 1:
                _check_reference(component.call, table[name].iloc[examples[name]].tolist())
        total += width
    size = total * len(table) * 8
    if not worst and (total > max_columns or size > _MAX_BYTES):
        raise ValueError(
            f"the formula leads to about {total:,} columns for {len(table):,} rows ({size / 2**30:,.1f} GiB); at most "
            f"{max_columns:,} columns and {_MAX_BYTES / 2**30:.0f} GiB are built. Use fewer terms."
        )
    if worst and (total > max_columns or size > _MAX_BYTES):
        raise ValueError(
            f"column {worst!r} has {most:,} levels, which leads to about {total:,} columns for "
            f"{len(table):,} rows ({size / 2**30:,.1f} GiB); at most {max_columns:,} columns and "
            f"{_MAX_BYTES / 2**30:.0f} GiB are built. Use a random effect, (1 | {worst}), or fewer levels. "
            f"If {worst!r} holds numbers as text, convert it with pd.to_numeric."
        )


def _check_reference(call: Any, levels: list[Any]) -> None:
    """Checks the level that T(x, 'a'), S(x, 'a') or C(x, Treatment('a')) names."""
    for lazy in [*call.args[1:], *call.kwargs.values()]:
        values = [*lazy.args, *lazy.kwargs.values()] if isinstance(lazy, LazyCall) else [lazy]
        for value in values:
            if isinstance(value, LazyValue) and value.value is not None and value.value not in levels:
                raise ValueError(f"{call}: {value} is not a level. Levels: {listing(levels)}.")


def sample_rows(num_rows: int, examples: dict[str, NDArray[np.intp]]) -> NDArray[np.intp]:
    """Returns rows that are spread over the table and show every level of every factor."""
    spread = np.linspace(0, num_rows - 1, min(num_rows, _CHECK_ROWS)).astype(np.intp)
    return np.unique(np.concatenate([spread, *examples.values()]))
