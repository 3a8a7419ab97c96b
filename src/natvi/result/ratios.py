"""Odds, rate and hazard ratios: e^coefficient, for a step of one unit or of any size."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

INTERCEPT = "Intercept"
TOO_FINE, SEEN = 1e-3, 1e-2  # sds of a coefficient: below the first, the step is raised until it is beyond the second
ODDS, RATES = {"logit": "odds"}, {"log": "rate", "cloglog": "hazard", "log hazard": "hazard"}


def ratio_table(model: Any, links: Mapping[str, str], prob: float, step: Mapping[str, float] | None) -> pd.DataFrame:
    """Return median and interval of e^(step * coefficient); the intercept, which is no ratio, is left out.

    Args:
        model: What was fitted.
        links: The links for which these ratios mean something, with their names.
        prob: The probability of the intervals.
        step: For some coefficients, by how many units their column rises; of all others it is one.
    """
    if model.link not in links:
        has = "odds_ratios()" if model.link in ODDS else "rate_ratios()" if model.link in RATES else None
        cure = f"Use {has}." if has else "Use compare(), which averages over the data on the scale of the response."
        raise ValueError(
            f"These ratios are for models with a {', '.join(links)} link, and this one has {model.link}. {cure}"
        )
    table = model.tables(prob)["coefficients"].drop(index=INTERCEPT, errors="ignore")
    median = model.tables(1e-9)["coefficients"].iloc[:, 2].reindex(table.index)  # both ends of it are the median
    units = _units(step, list(table.index))
    with np.errstate(over="ignore"):
        columns = {
            f"{links[model.link]} ratio": np.exp(units * median),
            **{name: np.exp(units * table[name]) for name in table.columns[2:]},
        }
    return pd.DataFrame({"step": units, **columns} if step else columns)


def larger_steps(table: pd.DataFrame) -> dict[str, float]:
    """Return a power of ten for every coefficient whose ratio for one unit three decimals would show as 1.000.

    Example:
        >>> larger_steps(pd.DataFrame({"mean": [2e-5, 0.3], "sd": [6.7e-6, 0.1]}, index=["income", "age"]))
        {'income': 10000.0}
    """
    sds = {str(name): float(sd) for name, sd in zip(table.index, table["sd"], strict=True) if name != INTERCEPT}
    return {name: 10.0 ** float(np.ceil(np.log10(SEEN / sd))) for name, sd in sds.items() if 0 < sd < TOO_FINE}


def _units(step: Mapping[str, float] | None, names: list[str]) -> pd.Series:
    units = pd.Series(1.0, index=names)
    if step is None:
        return units
    if not isinstance(step, Mapping):
        raise ValueError(
            f'step must be a dict of names and sizes, such as {{"{names[0] if names else "age"}": 10}}; '
            f"got a {type(step).__name__}."
        )
    for name, size in step.items():
        if name not in units:
            raise ValueError(f"step names {name!r}, and the coefficients are {', '.join(map(repr, names))}. Use these.")
        if isinstance(size, bool) or not isinstance(size, (int, float, np.number)) or not 0 < size < np.inf:
            raise ValueError(f"The step of {name!r} must be a positive number of its units; got {size!r}.")
        units[name] = float(size)
    return units
