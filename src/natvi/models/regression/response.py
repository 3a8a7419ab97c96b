"""Responses: what each family takes, and a clear answer to what it does not."""

import difflib
from typing import NamedTuple

import numpy as np
import pandas as pd

from natvi.formula.raw_columns import first_row
from natvi.models.regression.binomial import check_trials, log_choose
from natvi.models.regression.family.responses import (
    CENSORED,
    COUNTS,
    NAMES,
    POSITIVE,
    TIMES,
    check_shares,
    encode_categories,
    signed_times,
)

FAMILY_NAMES = NAMES
LARGEST = 1e100  # of a response or a covariate: sums of squares must stay below 1e308


class Response(NamedTuple):
    """The response as numbers, and what was decided on the way.

    Attributes:
        values: One number per row; for a binomial response the proportion y/n of successes.
        notes: For the summary, such as which level counts as 1.
        trials: The trials n of every row of a binomial response, else None.
        log_choose: log C(n, y) of every row of a binomial response, else None. With it the binomial is a
            bernoulli of weight n: log p = n {(y/n) eta - log(1 + e^eta)} + log C(n, y).
    """

    values: np.ndarray
    notes: tuple[str, ...]
    trials: np.ndarray | None = None
    log_choose: np.ndarray | None = None


def encode_response(
    response: pd.Series, name: str, family: str, trials: np.ndarray | None = None, *, may_be_equal: bool = False
) -> Response:
    """Turn a response column into float64 numbers that the family accepts.

    Args:
        response: The column, free of missing values; for `p(y, n)` the successes.
        name: Its name, for messages.
        family: The name of the family.
        trials: For `p(y, n)` the trials of every row.
        may_be_equal: Whether all values may be equal, since nothing is to be learned from them; of text the level that
            counts as 1 must be among others all the same.

    Returns:
        The numbers and notes for the summary, such as which level counts as 1.

    Raises:
        ValueError: If the values lie outside what the family describes, or are all equal.
    """
    if family not in FAMILY_NAMES:
        near = difflib.get_close_matches(family, FAMILY_NAMES, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"Unknown family {family!r}.{hint} Known: {', '.join(FAMILY_NAMES)}.")
    if family in TIMES:
        times = _encode_number(response, name, family).values
        return Response(signed_times(times, trials, name, response.index), ())
    if trials is not None:
        return _encode_proportion(response, name, family, trials, may_be_equal)
    if family == "ordinal":
        return Response(encode_categories(response, name), ())
    binary = family in ("bernoulli", "binomial")
    encoded = _encode_binary(response, name, family) if binary else _encode_number(response, name, family)
    first = encoded.values[0]
    numeric = pd.api.types.is_numeric_dtype(response) or pd.api.types.is_bool_dtype(response)
    if np.all(encoded.values == first) and not (may_be_equal and numeric):
        raise ValueError(
            f"All {len(response)} values of the response {name!r} equal {response.tolist()[0]!r}: there is nothing to "
            "learn from them. Check the column and any filter applied to the data."
        )
    if family != "binomial":
        return encoded
    note = f"{name}: one trial in each row; several trials are written p(y, n)"
    ones = np.ones(len(encoded.values))
    return Response(encoded.values, (*encoded.notes, note), ones, np.zeros(len(ones)))


def refuse_overflow(columns: np.ndarray, names: tuple[str, ...]) -> None:
    """Refuse numbers whose squares are no longer numbers, and say by what to divide.

    Args:
        columns: One column for each name `(n, p)`.
        names: What they are called.
    """
    sizes = np.maximum(np.max(columns, axis=0, initial=0.0), -np.min(columns, axis=0, initial=0.0))
    for name, size in zip(names, sizes, strict=True):
        if size > LARGEST:
            power = int(np.floor(np.log10(size)))
            raise ValueError(
                f"{name!r} holds numbers up to {size:.3g}, whose squares are too large to compute with. Give it in "
                f"another unit, e.g. divide it by 1e{power}."
            )


def row_weights(weights: np.ndarray | None, trials: np.ndarray | None) -> np.ndarray | None:
    """Return how often each row counts, weight times trials, or None where every row counts once."""
    if weights is None or trials is None:
        return trials if weights is None else weights
    return weights * trials


def _encode_proportion(response: pd.Series, name: str, family: str, trials: np.ndarray, may_be_equal: bool) -> Response:
    if name.startswith(CENSORED):
        raise ValueError(
            f"{name!r} describes waiting times that may be cut short, and a {family} response is none. Use "
            "family='weibull' or 'exponential', or give one column as the response."
        )
    if family != "binomial":
        raise ValueError(
            f"{name!r} describes successes out of trials, and a {family} response has no trials. Use "
            "family='binomial', or give one column as the response."
        )
    y, n = check_trials(_encode_number(response, name, family).values, trials, name, response.index)
    for extreme, words in ((0.0, "no success"), (n, "nothing but successes")):
        if np.all(y == extreme) and not may_be_equal:
            raise ValueError(
                f"All {len(y)} rows of {name!r} have {words}: there is nothing to learn from them. Check the columns "
                "and any filter applied to the data."
            )
    return Response(y / n, (), n, log_choose(n, y))


def _encode_binary(response: pd.Series, name: str, family: str) -> Response:
    if pd.api.types.is_bool_dtype(response):
        return Response(response.to_numpy(dtype=np.float64), (f"{name}: True counts as 1",))
    if pd.api.types.is_numeric_dtype(response):
        values = response.to_numpy(dtype=np.float64)
        strange = np.unique(values[(values != 0) & (values != 1)])
        if len(strange) and family == "binomial":
            shares = bool(np.all((values >= 0) & (values <= 1)))
            cure = f"p({name}*n, n) for proportions of n trials" if shares else f"p({name}, n)"
            raise ValueError(
                f"A binomial response without trials must be 0 or 1; {name!r} also holds {_some(strange.tolist())}. "
                f"Write the trials into the formula, {cure}, where n is a column or a number."
            )
        if len(strange):
            raise ValueError(
                f"A bernoulli response must be 0 or 1; {name!r} also holds {_some(strange.tolist())}. For counts use "
                f"family='poisson', for successes of n trials p({name}, n) and family='binomial'; for two other "
                f"codes map them first, e.g. data[{name!r}] = (data[{name!r}] == {strange[-1]:g})."
            )
        return Response(values, ())
    levels = _levels(response)
    if len(levels) == 1:  # all equal: the caller says so
        return Response(np.zeros(len(response)), ())
    if len(levels) != 2:
        raise ValueError(
            f"A {family} response needs two levels; {name!r} has {len(levels)}: {_some(levels)}. Choose the one "
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
    refuse_overflow(values[:, None], (name,))
    if family in COUNTS:
        _check_counts(values, name, family)
    if family == "beta":
        check_shares(values, name, response.index)
    if family in POSITIVE and (wrong := values <= 0).any():
        raise ValueError(
            f"A {family} response must be greater than zero; {name!r} holds {int(wrong.sum())} value(s) of "
            f"{len(values)} that are not, e.g. {values[wrong][0]:g} in row {first_row(response.index, wrong)}. Use "
            "family='gaussian' for values of either sign. Adding a constant to the zeros would decide the answer by "
            "its size: model zeros apart instead, with family='bernoulli'."
        )
    return Response(values, ())


def _check_counts(values: np.ndarray, name: str, family: str) -> None:
    negative, broken = values[values < 0], values[values != np.floor(values)]
    if len(negative):
        raise ValueError(
            f"A {family} response must be a count; {name!r} holds {len(negative)} negative value(s), "
            f"e.g. {negative[0]:g}. For real-valued responses use family='gaussian'."
        )
    if len(broken):
        raise ValueError(
            f"A {family} response must be a count; {name!r} holds {len(broken)} value(s) that are not whole "
            f"numbers, e.g. {broken[0]:g}. For rates, use counts with offset(log(exposure))."
        )


def _levels(response: pd.Series) -> list:
    if isinstance(response.dtype, pd.CategoricalDtype):
        return response.cat.remove_unused_categories().cat.categories.tolist()
    return sorted(response.unique().tolist(), key=str)


def _some(values: object, most: int = 5) -> str:
    items = [f"{value:g}" if isinstance(value, float) else str(value) for value in list(values)]  # type: ignore[call-overload]
    return ", ".join(items[:most]) + (", ..." if len(items) > most else "")
