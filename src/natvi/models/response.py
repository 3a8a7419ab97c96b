"""Responses: what each family takes, and a clear answer to what it does not."""

from typing import NamedTuple

import numpy as np
import pandas as pd


class Response(NamedTuple):
    """The response as numbers, and what was decided on the way."""

    values: np.ndarray
    notes: tuple[str, ...]


def encode_response(response: pd.Series, name: str, family: str) -> Response:
    """Turn a response column into float64 numbers that the family accepts.

    Args:
        response: The column, free of missing values.
        name: Its name, for messages.
        family: The name of the family.

    Returns:
        The numbers and notes for the summary, such as which level counts as 1.

    Raises:
        ValueError: If the values lie outside what the family describes, or are all equal.
    """
    encoded = _encode_binary(response, name) if family == "bernoulli" else _encode_number(response, name, family)
    first = encoded.values[0]
    if np.all(encoded.values == first):
        raise ValueError(
            f"All {len(response)} values of the response {name!r} equal {response.tolist()[0]!r}: there is nothing to "
            "learn from them. Check the column and any filter applied to the data."
        )
    return encoded


def _encode_binary(response: pd.Series, name: str) -> Response:
    if pd.api.types.is_bool_dtype(response):
        return Response(response.to_numpy(dtype=np.float64), (f"{name}: True counts as 1",))
    if pd.api.types.is_numeric_dtype(response):
        values = response.to_numpy(dtype=np.float64)
        strange = np.unique(values[(values != 0) & (values != 1)])
        if len(strange):
            raise ValueError(
                f"A bernoulli response must be 0 or 1; {name!r} also holds {_some(strange.tolist())}. For counts use "
                f"family='poisson'; for two other codes map them first, e.g. data[{name!r}] = "
                f"(data[{name!r}] == {strange[-1]:g})."
            )
        return Response(values, ())
    levels = _levels(response)
    if len(levels) == 1:  # all equal: the caller says so
        return Response(np.zeros(len(response)), ())
    if len(levels) != 2:
        raise ValueError(
            f"A bernoulli response needs two levels; {name!r} has {len(levels)}: {_some(levels)}. Choose the one "
            f"that counts as success, e.g. data[{name!r}] = (data[{name!r}] == {levels[-1]!r})."
        )
    note = f"{name}: {levels[1]!r} counts as 1, {levels[0]!r} as 0"
    return Response((response == levels[1]).to_numpy(dtype=np.float64), (note,))


def _encode_number(response: pd.Series, name: str, family: str) -> Response:
    if pd.api.types.is_bool_dtype(response) or not pd.api.types.is_numeric_dtype(response):
        two = len(_levels(response)) == 2
        cure = "For two outcomes use family='bernoulli'." if two else f"Convert {name!r} to numbers first."
        raise ValueError(f"A {family} response must be numeric; {name!r} is of type {response.dtype}. {cure}")
    values = response.to_numpy(dtype=np.float64)
    if not np.all(np.isfinite(values)):
        count = int((~np.isfinite(values)).sum())
        raise ValueError(f"The response {name!r} holds {count} infinite value(s). Remove or replace them.")
    if family == "poisson":
        negative, broken = values[values < 0], values[values != np.floor(values)]
        if len(negative):
            raise ValueError(
                f"A poisson response must be a count; {name!r} holds {len(negative)} negative value(s), "
                f"e.g. {negative[0]:g}. For real-valued responses use family='gaussian'."
            )
        if len(broken):
            raise ValueError(
                f"A poisson response must be a count; {name!r} holds {len(broken)} value(s) that are not whole "
                f"numbers, e.g. {broken[0]:g}. For rates, use counts with offset(log(exposure))."
            )
    return Response(values, ())


def _levels(response: pd.Series) -> list:
    if isinstance(response.dtype, pd.CategoricalDtype):
        return response.cat.remove_unused_categories().cat.categories.tolist()
    return sorted(response.unique().tolist(), key=str)


def _some(values: object, most: int = 5) -> str:
    items = [f"{value:g}" if isinstance(value, float) else str(value) for value in list(values)]  # type: ignore[call-overload]
    return ", ".join(items[:most]) + (", ..." if len(items) > most else "")
