"""The rows of a table behind a formula, piece by piece, as arrays that the model takes."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from natvi.families.table import Family
from natvi.formula.design import Formula, build_design
from natvi.formula.margins import products_of
from natvi.formula.raw_columns import read_column
from natvi.hosts.collect import checked, collect
from natvi.hosts.tables import Table
from natvi.models.regression.coordinates import transform
from natvi.models.regression.prior.choice import Prior, choose_prior
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.response import encode_response, refuse_overflow
from natvi.models.regression.rows import Covariates, Rows, gather
from natvi.models.regression.spread.levels import Common, in_use
from natvi.models.regression.spread.moments import ColumnMoments, Columns, standard_form
from natvi.models.regression.spread.survey import Survey, response_of

BINARY = ("bernoulli", "binomial")


class Piece(NamedTuple):
    """Rows with the label of the group of each, None without groups."""

    rows: Rows
    labels: pd.Series | None


class TableRows:
    """Reads a table's rows; those of a table in memory are kept once they are arrays."""

    def __init__(self, common: Common, table: Table, family: Family) -> None:
        """Bind the table."""
        self._common, self._table, self._family = common, table, family
        self._left = Formula(f"{common.formula.response} ~ 1", common.formula.response, "1", "0", None)
        self._kept: list[Piece] | None = None

    @property
    def in_memory(self) -> bool:
        """Whether the rows are kept."""
        return self._table.in_memory

    def read(self) -> Iterator[Piece]:
        """Return the pieces."""
        if not self.in_memory:
            yield from self._fresh()
            return
        if self._kept is None:
            self._kept = list(self._fresh())
        yield from self._kept

    def rows(self) -> Iterator[Rows]:
        """Return the pieces without labels."""
        return (piece.rows for piece in self.read())

    def forget(self) -> None:
        """Free what was kept."""
        self._kept = None

    def _fresh(self) -> Iterator[Piece]:
        common = self._common
        group = common.formula.group
        for raw in self._table.read(common.names):
            frame = in_use(raw, common.names, common.weights, common.missing).frame
            if not len(frame):
                continue
            X, Z, offset = common.recipe.evaluate(frame)
            refuse_overflow(np.column_stack([X, Z]), (*common.recipe.fixed_names, *common.recipe.random_names))
            design = build_design(self._left, _with_numbers(frame, common, self._family), "error")
            response = encode_response(
                design.response, design.response_name, self._family.name, design.trials, may_be_equal=True
            )
            weights = None if common.weights is None else frame[common.weights].to_numpy(dtype=np.float64)
            covariates = Covariates(X, offset if common.recipe.offset else None, Z if group else None)
            yield Piece(gather(covariates, response, weights), None if group is None else read_column(frame, group))


def _with_numbers(frame: pd.DataFrame, common: Common, family: Family) -> pd.DataFrame:
    """Return the frame with a response of text as 0 and 1."""
    levels, name = common.levels, common.formula.response
    if not levels:
        return frame
    if family.name not in BINARY or len(levels) != 2:
        raise ValueError(
            f"the response {name!r} is text with the levels {', '.join(map(str, levels[:5]))}; a {family.name} "
            f"response must be {'one of two levels' if family.name in BINARY else 'numeric'}. Convert it first."
        )
    return frame.assign(**{name: (frame[name] == levels[1]).astype(np.float64)})


def notes_of(common: Common, family: Family) -> tuple[str, ...]:
    """Return notes for the summary."""
    notes, (missing, weightless), total = [], common.left_out, sum(common.rows) + sum(common.left_out)
    if common.levels and family.name in BINARY:
        notes.append(f"{common.formula.response}: {common.levels[1]!r} counts as 1, {common.levels[0]!r} as 0")
    if missing:
        notes.append(f"{missing:,} of {total:,} rows left out: missing values (missing='error' refuses them)")
    if weightless:
        notes.append(f"{weightless:,} of {total:,} rows left out: weight zero")
    if len(common.rows) > 1:
        notes.append(f"fitted by {len(common.rows)} processes, of {min(common.rows):,} to {max(common.rows):,} rows")
    return tuple(notes)


def prior_of(prior: Any, family: Family, common: Common, source: TableRows, survey: Survey) -> Prior:
    """Return the prior that all rows in memory would have had."""
    recipe, design, rows = common.recipe, common.design, survey.sample
    fixed, random = products_of(recipe.fixed), products_of(recipe.random)
    standard = standard_form(survey.X, fixed, True, partial(_look_again, source, "X"))
    Z = np.zeros((len(rows.y), 0)) if rows.Z is None else rows.Z
    data = PriorData(
        *(rows.y, rows.X, Z, rows.offset, rows.weight, fixed, random),
        standard=standard,
        response=response_of(survey, family, standard.has_constant),
        random_standard=lambda centred: standard_form(survey.Z, random, centred, partial(_look_again, source, "Z")),
    )
    return choose_prior(
        prior,
        family,
        data,
        names=design.fixed_names,
        correlated=design.correlated,
        random_names=design.random_names,
        group=common.formula.group,
    )


def _look_again(source: TableRows, which: str, K: np.ndarray, chosen: np.ndarray) -> Columns:
    """Return the moments of the chosen columns of X K, by another pass over all rows."""
    own = ColumnMoments()

    def look() -> None:
        for rows in source.rows():
            own.add(transform(getattr(rows, which), K)[:, chosen], rows.weight)

    checked(look)
    parts = collect(own)
    for part in parts[1:]:
        parts[0].join(part)
    return parts[0].columns()
