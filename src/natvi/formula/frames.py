"""Tables of any kind as pandas frames: narwhals reads polars, Arrow, Modin, cuDF and others, without their `to_pandas`.

Column by column, so that polars needs no pyarrow for it; an Enum keeps its order, missing values become NaN or None.
"""

from typing import Any

import numpy as np
import pandas as pd


def as_frame(data: Any) -> pd.DataFrame:
    """Returns `data` as a DataFrame; dicts, records and other frames are converted.

    Example:
        >>> as_frame({"x": [1.0, 2.0]}).shape
        (2, 1)
    """
    if isinstance(data, pd.DataFrame):
        return data
    import narwhals as nw  # takes time to import, and only tables of other kinds need it

    try:
        found = nw.from_native(data, pass_through=True)
        if isinstance(found, nw.LazyFrame):
            found = found.collect()
        if isinstance(found, nw.DataFrame):
            columns = {name: _column(found[name]) for name in found.columns}
            return pd.DataFrame(columns, index=pd.RangeIndex(len(found)))
        return data.to_pandas() if hasattr(data, "to_pandas") else pd.DataFrame(data)
    except Exception as error:
        raise ValueError(
            f"data of type {type(data).__name__} cannot be read as a table ({error}). "
            "Give a pandas or polars DataFrame or a dict of equally long columns."
        ) from error


def _column(series: Any) -> Any:
    """Returns a column as something that pandas stores as it should: numbers, booleans, categories, else objects."""
    import narwhals as nw

    dtype = series.dtype
    if isinstance(dtype, nw.Enum):  # other categories have the order in which they happened to come: no order
        return pd.Categorical(series.to_list(), categories=list(dtype.categories))
    if dtype.is_numeric() and not dtype.is_decimal():
        values = series.to_numpy()
        return values if values.dtype != object else np.asarray(series.to_list(), dtype=np.float64)
    if isinstance(dtype, nw.Decimal):
        return np.array([np.nan if value is None else float(value) for value in series.to_list()])
    if isinstance(dtype, nw.Boolean) and series.null_count() == 0:
        return np.asarray(series.to_list(), dtype=bool)
    if isinstance(dtype, nw.Boolean):
        return pd.array(series.to_list(), dtype="boolean")
    if dtype.is_temporal():
        return (
            pd.Series(pd.to_datetime(series.to_list()))
            if isinstance(dtype, nw.Datetime | nw.Date)
            else series.to_list()
        )
    return pd.Series(series.to_list(), dtype=object)
