"""Averages over the data: what the model expects of these rows, had a column held something else.

For draws theta_s and variants k of the data, f_sk = sum_i w_i g(eta_ik(theta_s)) / sum_i w_i. All variants meet the
same draws, so that differences and ratios of them have the spread that they should.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Float

from natvi.families.table import Family
from natvi.formula.columns import ColumnRecipe, as_frame
from natvi.formula.raw_columns import listing
from natvi.models.regression.criticism import Drawn
from natvi.models.regression.origin import Origin
from natvi.models.regression.predict import check_word, drawn_values, kinds_of_prediction
from natvi.models.regression.rows import Covariates, Rows

CHUNK_CELLS = 2_000_000
MOST_ROWS = 20_000  # of more rows an even selection is taken
MOST_CELLS = 50  # groups of rows that are averaged apart


@runtime_checkable
class Averaged(Protocol):
    """What an average needs of a fitted regression."""

    family: Family
    columns: ColumnRecipe | None
    rows: Rows | None
    origin: Origin | None

    def covariates_for(self, data: Any, groups: str) -> Covariates:
        """Return rows for predictors."""
        ...

    def draws_for(self, covariates: Covariates, num_draws: int, seed: int) -> Drawn:
        """Draw the parameters that the predictors of some rows need."""
        ...


class Setting(NamedTuple):
    """How an average is taken.

    Attributes:
        kind: "response" or "link".
        groups: "known", "new" or "population".
        num_draws: The number of draws.
        seed: The same seed gives the same draws.
        data: Rows to average over; None for the training data.
    """

    kind: str = "response"
    groups: str = "known"
    num_draws: int = 2000
    seed: int = 0
    data: Any = None


class Sample(NamedTuple):
    """The rows that are averaged over: a frame, a weight for each, and the cell that each belongs to."""

    frame: pd.DataFrame
    weight: np.ndarray
    cells: pd.DataFrame
    code: np.ndarray


def find_sample(fit: Averaged, by: Any, data: Any) -> Sample:
    """Return the rows to average over, of very many an even selection, in the cells of the columns `by`."""
    if fit.columns is None:
        raise ValueError(
            "averages over a column need a model from a formula, and this one is from arrays. Use natvi.glm with a "
            "data frame, or predict() at rows of your own."
        )
    if data is not None:
        frame = as_frame(data)
        weight = fit.columns.apply_weights(frame)
    else:
        if fit.origin is None:
            raise ValueError(
                "a fit that was loaded from a file, or made from batches, does not hold its data frame. Give the rows "
                "to average over as data=."
            )
        frame, rows = fit.origin.frame(), fit.rows
        weight = (
            None if rows is None or rows.weight is None else rows.weight / (1 if rows.trials is None else rows.trials)
        )
    weight = np.ones(len(frame)) if weight is None else weight
    names = [by] if isinstance(by, str) else list(by or ())
    if missing := [name for name in names if name not in frame.columns]:
        raise ValueError(f"by names {missing[0]!r}, which is no column of the data: {listing(frame.columns)}.")
    if (at := _selection(len(frame))) is not None:
        frame, weight = frame.iloc[at], weight[at]
    named = pd.DataFrame(frame[names])
    cells = named.drop_duplicates().sort_values(by=names) if names else pd.DataFrame(index=[0])
    if len(cells) > MOST_CELLS:
        raise ValueError(
            f"by={by!r} makes {len(cells):,} groups of rows; {MOST_CELLS} are possible. Cut the column into classes, "
            "e.g. data['class'] = pd.cut(data['x'], 4).astype(str)."
        )
    code = np.zeros(len(frame), dtype=int)
    if names:
        code = pd.MultiIndex.from_frame(cells).get_indexer(pd.MultiIndex.from_frame(named))
    return Sample(frame, weight, cells.reset_index(drop=True), np.asarray(code))


def _selection(n: int) -> np.ndarray | None:
    return None if n <= MOST_ROWS else np.linspace(0, n - 1, MOST_ROWS).astype(int)


def average_draws(
    fit: Averaged,
    sample: Sample,
    variants: Sequence[dict[str, Any]],
    setting: Setting,
    scale: Float[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, "s k c"]:
    """Return draws of the average of every variant in every cell.

    Args:
        fit: A fitted regression.
        sample: The rows.
        variants: What columns hold instead, a value or an array, by their name.
        setting: Scale, groups and draws.
        scale: A factor of every row, 1 if not given.
    """
    frame, n = sample.frame, len(sample.frame)
    together = pd.concat([frame.assign(**variant) for variant in variants], ignore_index=True)
    covariates = fit.covariates_for(together, setting.groups)
    drawn = fit.draws_for(covariates, setting.num_draws, setting.seed)
    check_word("kind", setting.kind, kinds_of_prediction(drawn.family))
    weights = np.zeros((n, len(sample.cells)))
    weights[np.arange(n), sample.code] = sample.weight
    weights /= weights.sum(axis=0)
    if scale is not None:
        weights *= scale[:, None]
    parts = []
    size = max(1, CHUNK_CELLS // len(together))
    for at in range(0, setting.num_draws, size):
        own = slice(at, at + size)
        eta, disp = drawn.take(own).predictors()
        value = drawn_values(drawn.family, eta, disp, setting.kind)
        parts.append(value.reshape(len(value), len(variants), n) @ weights)
    return np.concatenate(parts)
