"""Marginal means, comparisons and slopes of one column, as tidy tables."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from natvi.formula.raw_columns import listing
from natvi.models.regression.predict import check_word
from natvi.models.regression.questions.averages import Averaged, Sample, Setting, average_draws, find_sample
from natvi.models.regression.tables import interval_names

MEASURES = ("difference", "ratio", "odds_ratio")
PAIRS = ("reference", "all")
MOST_LEVELS = 50
STEP = 1e-4  # of a slope, as a share of the column's range


class Levels(NamedTuple):
    """Values that a column is set to; `shift` where the number is added to what each row holds."""

    values: list[Any]
    names: list[str]
    shift: bool = False


def marginal_means(fit: Averaged, variable: str, at: Any, by: Any, prob: float, setting: Setting) -> pd.DataFrame:
    """Return the average expectation had all rows held each of some values."""
    sample = find_sample(fit, by, setting.data)
    column = _column(fit, sample, variable)
    levels = _given(column, at) if at is not None else _spread(column)
    draws = average_draws(fit, sample, [{variable: _filled(column, value)} for value in levels.values], setting)
    return _table(sample, {variable: levels.values}, draws, prob)


def comparisons(
    fit: Averaged, variable: str, levels: Any, pairs: str, by: Any, measure: str, prob: float, setting: Setting
) -> pd.DataFrame:
    """Return differences or ratios of the averages at pairs of values."""
    check_word("measure", measure, MEASURES)
    check_word("pairs", pairs, PAIRS)
    if measure == "odds_ratio" and (setting.kind == "link" or fit.family.name not in ("bernoulli", "binomial")):
        raise ValueError(
            "measure='odds_ratio' compares probabilities: it is for bernoulli and binomial responses with "
            "kind='response'. Use 'difference' or 'ratio'."
        )
    sample = find_sample(fit, by, setting.data)
    column = _column(fit, sample, variable)
    found = _given(column, levels) if levels is not None else _contrasted(column)
    if len(found.values) < 2:
        raise ValueError(f"{variable!r} holds one value only, {found.names[0]}: there is nothing to compare it with.")
    variants = [{variable: column + value if found.shift else _filled(column, value)} for value in found.values]
    draws = average_draws(fit, sample, variants, setting)
    k = len(found.values)
    chosen = (
        [(b, 0) for b in range(1, k)] if pairs == "reference" else [(b, a) for a in range(k) for b in range(a + 1, k)]
    )
    sign = "-" if measure == "difference" else "/"
    compared = np.stack([_measured(draws[:, b], draws[:, a], measure) for b, a in chosen], axis=1)
    names = [f"{found.names[b]} {sign} {found.names[a]}" for b, a in chosen]
    return _table(sample, {"contrast": names}, compared, prob)


def average_slopes(fit: Averaged, variable: str, by: Any, prob: float, setting: Setting) -> pd.DataFrame:
    """Return the average derivative in a number: central differences, one-sided at the ends of its range."""
    sample = find_sample(fit, by, setting.data)
    column = _column(fit, sample, variable)
    if not _is_number(column) or column.nunique() < 3:
        raise ValueError(
            f"slopes are for columns of many numbers, and {variable!r} holds "
            f"{listing(sorted(column.unique(), key=str), 8)}. Use compare({variable!r})."
        )
    x = column.to_numpy(dtype=float)
    low, high = x.min(), x.max()
    step = STEP * (high - low)
    # within the range: a spline knows nothing beyond it
    up, down = np.minimum(x + step, high), np.maximum(x - step, low)
    draws = average_draws(fit, sample, [{variable: up}, {variable: down}], setting, 1.0 / (up - down))
    return _table(sample, {"slope": [variable]}, draws[:, :1] - draws[:, 1:], prob)


def _measured(upper: np.ndarray, lower: np.ndarray, measure: str) -> np.ndarray:
    if measure == "difference":
        return upper - lower
    with np.errstate(divide="ignore", invalid="ignore"):
        if measure == "odds_ratio":
            upper, lower = upper / (1 - upper), lower / (1 - lower)
        return upper / lower


def _table(sample: Sample, heads: dict[str, list[Any]], draws: np.ndarray, prob: float) -> pd.DataFrame:
    """Return a line for every variant and cell: what it is, mean, sd and interval."""
    (name, values), cells = next(iter(heads.items())), sample.cells
    name = name if name not in cells.columns else f"{name} set to"
    lines = pd.DataFrame({name: np.repeat(np.array(values, dtype=object), len(cells))}).infer_objects()
    repeated = pd.concat([cells] * len(values), ignore_index=True)
    low, high = np.quantile(draws, [0.5 - prob / 2, 0.5 + prob / 2], axis=0)
    columns = (draws.mean(axis=0), draws.std(axis=0, ddof=1), low, high)
    found = dict(zip(("mean", "sd", *interval_names(prob)), (part.ravel() for part in columns), strict=True))
    return pd.concat([lines, repeated, pd.DataFrame(found)], axis=1)


# --- the column ------------------------------------------------------------------------------------------------


def _column(fit: Averaged, sample: Sample, variable: str) -> pd.Series:
    assert fit.columns is not None
    used = fit.columns.used_columns
    if variable not in used:
        raise ValueError(
            f"{variable!r} is not among the columns that the model reads: {listing(used)}. Name one of these; an "
            "expression such as log(x) is asked about by its column x."
        )
    return pd.Series(sample.frame[variable])


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _values(column: pd.Series) -> list[Any]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        present = set(column.unique())
        return [value for value in column.cat.categories if value in present]
    return sorted(column.unique().tolist(), key=None if _is_number(column) else str)


def _spread(column: pd.Series) -> Levels:
    """Return all levels of a factor, or five values of a number from its 5% to its 95% quantile."""
    values = _values(column)
    if _is_number(column) and len(values) > 5:
        values = [float(f"{value:.4g}") for value in np.quantile(column, [0.05, 0.25, 0.5, 0.75, 0.95])]
        values = list(dict.fromkeys(values))
    return _named(column, values)


def _contrasted(column: pd.Series) -> Levels:
    """Return all levels of a factor; for a number, what each row holds and one more."""
    values = _values(column)
    if _is_number(column) and len(values) > 2:
        return Levels([0, 1], [str(column.name), f"({column.name} + 1)"], shift=True)
    return _named(column, values)


def _given(column: pd.Series, values: Any) -> Levels:
    values = [values] if isinstance(values, str) or not hasattr(values, "__iter__") else list(values)
    if not values:
        raise ValueError(f"no values of {column.name!r} were given. Leave the argument out, or give a list.")
    if not _is_number(column):
        known = _values(column)
        if strange := [value for value in values if value not in known]:
            raise ValueError(f"{strange[0]!r} is no level of {column.name!r}: {listing(known)}.")
    elif strange := [value for value in values if isinstance(value, str) or not np.isfinite(value)]:
        raise ValueError(f"{column.name!r} is a number, and {strange[0]!r} is none.")
    return _named(column, values)


def _named(column: pd.Series, values: list[Any]) -> Levels:
    if len(values) > MOST_LEVELS:
        raise ValueError(
            f"{column.name!r} has {len(values):,} levels; {MOST_LEVELS} can be compared at once. Give some of them."
        )
    return Levels(values, [f"{value:g}" if isinstance(value, float) else str(value) for value in values])


def _filled(column: pd.Series, value: Any) -> Any:
    """Return a column of one value, of the type that the column has."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return pd.Categorical([value] * len(column), dtype=column.dtype)
    return value
