"""Reading raw columns: names, kinds, missing and infinite values, and errors that say what to do."""

import difflib
from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]
Level = str | int | float | bool
MOST_TEXT_NUMBERS = 12  # levels of a text column that are numbers, such as months


def listing(items: Iterable[object], limit: int = 20) -> str:
    """Returns the items as text, cut after `limit`."""
    texts = [repr(plain_level(item)) for item in items]
    more = f", ... ({len(texts)} in all)" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more


def read_column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Returns one column; an unknown name raises an error that suggests the nearest one."""
    if name not in frame.columns:
        known = {str(column).lower(): str(column) for column in frame.columns}
        close = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f" Did you mean {known[close[0]]!r}?" if close else ""
        raise ValueError(f"there is no column {name!r} in the data.{hint} Columns: {listing(frame.columns)}.")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"the data has {column.shape[1]} columns named {name!r}. Rename all but one.")
    return column


def column_kind(column: pd.Series) -> str:
    """Returns `"numeric"` (numbers and booleans) or `"factor"` (text, categories) for a raw column."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype) or isinstance(dtype, pd.StringDtype):
        return "factor"
    if pd.api.types.is_complex_dtype(dtype):
        raise ValueError(f"column {column.name!r} holds complex numbers. Give real and imaginary parts apart.")
    if pd.api.types.is_numeric_dtype(dtype):
        return "numeric"
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if inferred in ("string", "empty"):
        return "factor"
    if inferred in ("integer", "floating", "mixed-integer-float", "boolean", "decimal"):
        return "numeric"
    if "date" in inferred or "time" in inferred or "period" in inferred:
        raise ValueError(
            f"column {column.name!r} holds dates or times ({dtype}), which have no unit in a model. Make it "
            f"days, (df[{column.name!r}] - df[{column.name!r}].min()).dt.days, or text, for a factor."
        )
    raise ValueError(
        f"column {column.name!r} mixes types ({inferred}). Make it text, df[{column.name!r}].astype(str), "
        f"or numbers, pd.to_numeric(df[{column.name!r}])."
    )


def read_numeric(frame: pd.DataFrame, name: str) -> Array:
    """Returns a numeric or boolean column as float64, without a copy where possible."""
    column = read_column(frame, name)
    if column_kind(column) != "numeric":
        raise ValueError(
            f"column {name!r} must be numbers but holds text or categories such as {listing(column[:1])}. "
            f"Convert it with pd.to_numeric(df[{name!r}])."
        )
    return column.to_numpy(dtype=np.float64)


def check_text(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Raises for a column of numbers that came as text: as a factor it would have a coefficient for every number."""
    for name in names:
        column = read_column(frame, name)
        if column_kind(column) != "factor" or isinstance(column.dtype, pd.CategoricalDtype):
            continue
        levels = pd.Series(column.unique()).astype(str)
        numbers = pd.Series(pd.to_numeric(levels, errors="coerce")).notna()
        if len(levels) <= MOST_TEXT_NUMBERS or numbers.mean() < 0.8:
            continue
        others = levels[~numbers]
        rest = f" but for {listing(others, 3)}" if len(others) else ""
        fix = ", errors='coerce'" if len(others) else ""
        raise ValueError(
            f"column {name!r} holds numbers as text{rest}: {len(levels):,} of them such as {listing(levels, 3)}, "
            f"and text is a factor with a coefficient for each. Make it numbers, df[{name!r}] = pd.to_numeric("
            f"df[{name!r}]{fix}), or say that it is a factor: C({name})."
        )


def missing_counts(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, int]:
    """Returns the number of missing values of every column that has any."""
    counts = {name: int(read_column(frame, name).isna().sum()) for name in names}
    return {name: count for name, count in counts.items() if count}


def check_complete(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Raises if one of the columns has missing values."""
    counts = missing_counts(frame, names)
    if counts:
        text = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise ValueError(
            f"the data has missing values: {text}. Fill them or drop the rows first, "
            f"e.g. df.dropna(subset={list(counts)})."
        )


def check_finite(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Raises if one of the columns has infinite values."""
    for name in names:
        column = read_column(frame, name)
        if pd.api.types.is_float_dtype(column.dtype):
            count = int(np.isinf(column.to_numpy(dtype=np.float64)).sum())
            if count:
                raise ValueError(f"column {name!r} has {count} infinite value(s). Remove or replace them.")


def first_row(index: pd.Index, where: NDArray[np.bool_]) -> str:
    """Returns the label of the first row that `where` marks, as text."""
    return repr(plain_level(index[int(np.argmax(where))]))


def plain_level(value: object) -> Level:
    """Returns a factor level as a JSON value; what JSON lacks (intervals, dates) becomes text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, Level) else str(value)
