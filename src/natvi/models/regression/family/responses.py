"""What ordinal responses, shares and waiting times must be, and what a family takes from the data of its response."""

import numpy as np
import pandas as pd

from natvi.families.ordinal import ordinal
from natvi.families.positive import weibull
from natvi.families.table import Family
from natvi.formula.raw_columns import first_row

COUNTS = (
    "poisson",
    "negative_binomial",
    "geometric",
    "zero_inflated_poisson",
    "zero_inflated_negative_binomial",
    "hurdle_poisson",
    "hurdle_negative_binomial",
)
POSITIVE, TIMES = ("gamma", "lognormal"), ("exponential", "weibull")
NAMES = ("gaussian", "bernoulli", "binomial", *COUNTS, *POSITIVE, *TIMES, "student_t", "beta", "ordinal")
CENSORED = "cens("
MOST_CATEGORIES = 12


def complete_family(family: Family, y: np.ndarray, name: str) -> Family:
    """Return the family with the numbers that the responses decide, or say why they do not fit it.

    Args:
        family: As it was asked for.
        y: The responses as numbers.
        name: Of the response, for messages.
    """
    if family.name == "ordinal":
        return _with_categories(family, y, name)
    if family.name in TIMES and np.all(y < 0):
        raise ValueError(_none_ended(name))
    if family.name == "weibull":
        return weibull(float(np.log(np.max(np.abs(y)))))._replace(extras=family.extras, parts=family.parts)
    zeros = y == 0
    if family.name.startswith(("zero_inflated", "hurdle")):
        _check_zeros(family, zeros, name)
    if (family.name, family.link) == ("gaussian", "log") and np.mean(y) <= 0:
        raise ValueError(
            f"A gaussian response with the log link has a positive expectation; {name!r} has the mean "
            f"{np.mean(y):.3g}. Use link='identity'."
        )
    return family


def _with_categories(family: Family, y: np.ndarray, name: str) -> Family:
    codes = np.unique(y)
    first, last = int(codes[0]), int(codes[-1])
    K = last - first + 1
    if K < 3:
        raise ValueError(
            f"The response {name!r} has {len(codes)} categories. Two are family='bernoulli'; an ordinal response needs "
            "three or more."
        )
    if len(codes) < K:
        missing = sorted(set(range(first, last + 1)) - set(codes.astype(int).tolist()))
        some = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise ValueError(
            f"No row of {name!r} has the code {some}, between {first} and {last}: nothing tells where its thresholds "
            f"lie. Number the categories without gaps, e.g. data[{name!r}] = data[{name!r}].rank(method='dense')."
        )
    if K > MOST_CATEGORIES:
        raise ValueError(
            f"The response {name!r} has {K} categories, and at most {MOST_CATEGORIES} are possible. Join some, or take "
            "them as numbers with family='gaussian'."
        )
    return ordinal(K, first, family.link)


def _none_ended(name: str) -> str:
    return f"No time of {name!r} has ended (all status are 0): there is nothing to learn from them. 1 is an event."


def _check_zeros(family: Family, zeros: np.ndarray, name: str) -> None:
    plain = family.name.removeprefix("zero_inflated_").removeprefix("hurdle_")
    if not zeros.any():
        raise ValueError(
            f"No value of {name!r} is zero: nothing tells the probability of a further one. Use family={plain!r}."
        )


def encode_categories(response: pd.Series, name: str) -> np.ndarray:
    """Return the codes of ordered categories: whole numbers as they are, or places among ordered levels, from 1 on."""
    if isinstance(response.dtype, pd.CategoricalDtype):
        if not response.cat.ordered:
            raise ValueError(
                f"The categories of {name!r} have no order. Give them one, data[{name!r}] = pd.Categorical("
                f"data[{name!r}], categories=[...], ordered=True), from the lowest to the highest."
            )
        empty = [level for level in response.cat.categories if not (response == level).any()]
        if empty and response.cat.codes.nunique() > 1 and len(response) > 1:
            raise ValueError(
                f"No row of {name!r} is {empty[0]!r}: nothing tells where its thresholds lie. Leave such levels out, "
                f"data[{name!r}] = data[{name!r}].cat.remove_unused_categories()."
            )
        return response.cat.codes.to_numpy(dtype=np.float64) + 1.0
    if pd.api.types.is_bool_dtype(response) or not pd.api.types.is_numeric_dtype(response):
        raise ValueError(
            f"An ordinal response is a whole number or an ordered category; {name!r} is of type {response.dtype}. Say "
            f"in which order its values come: data[{name!r}] = pd.Categorical(data[{name!r}], categories=[...], "
            "ordered=True), from the lowest to the highest."
        )
    values = response.to_numpy(dtype=np.float64)
    broken = values[(values != np.floor(values)) | ~np.isfinite(values)]
    if len(broken):
        raise ValueError(
            f"An ordinal response numbers its categories; {name!r} holds {len(broken)} value(s) that are not whole, "
            f"e.g. {broken[0]:g}. Use data[{name!r}].rank(method='dense') for their ranks, or family='gaussian'."
        )
    return values


def check_shares(values: np.ndarray, name: str, index: pd.Index) -> None:
    """Refuse what does not lie between 0 and 1."""
    wrong = (values <= 0) | (values >= 1)
    if not wrong.any():
        return
    outside = (values < 0) | (values > 1)
    cure = (
        f"For percentages divide by 100; for successes of n trials use p({name}, n) and family='binomial'."
        if outside.any()
        else "Model zeros and ones apart, with family='bernoulli', and the shares between with 'beta'; moving them "
        "inwards by a constant would decide the answer by its size."
    )
    raise ValueError(
        f"A beta response lies between 0 and 1, both left out; {name!r} holds {int(wrong.sum())} value(s) of "
        f"{len(values)} that do not, e.g. {values[wrong][0]:g} in row {first_row(index, wrong)}. {cure}"
    )


def signed_times(values: np.ndarray, status: np.ndarray | None, name: str, index: pd.Index) -> np.ndarray:
    """Return waiting times, those that were cut short with a minus sign."""
    wrong = ~(values > 0)
    if wrong.any():
        raise ValueError(
            f"Times must be greater than zero; {name!r} holds {int(wrong.sum())} value(s) of {len(values)} that are "
            f"not, e.g. {values[wrong][0]:g} in row {first_row(index, wrong)}. A time of zero is often one below the "
            "unit of measurement: give half a unit, or leave such rows out."
        )
    if status is None:
        return values
    strange = np.unique(status[(status != 0) & (status != 1)])
    if len(strange):
        more = " In codes 1 and 2, where 2 is an event, write status - 1." if set(strange.tolist()) == {2.0} else ""
        raise ValueError(
            f"The status in {name!r} is 1 where the time has ended with an event and 0 where it was cut short; it also "
            f"holds {', '.join(f'{value:g}' for value in strange[:5])}.{more}"
        )
    return np.where(status == 1, values, -values)
