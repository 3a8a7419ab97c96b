"""The columns of a formula over the rows of all processes: every level that occurs anywhere has its place.

One pass notes the kind of every column and the levels of the factors; with them a small table is made that shows each
level once, and the formula is applied to that. All processes then have the same recipe.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from natvi.formula.columns import ColumnRecipe
from natvi.formula.design import Design, Formula, build_design, raw_columns
from natvi.formula.raw_columns import check_finite, column_kind, listing, plain_level, read_column
from natvi.formula.terms import BASES, STATEFUL
from natvi.formula.training_table import complete_rows
from natvi.formula.weights import read_weights
from natvi.hosts.collect import checked, collect, count
from natvi.hosts.joining import require_agreement
from natvi.hosts.tables import Table

EXAMPLES = 200
MOST_LEVELS = 5000


@dataclass
class Seen:
    """What one process saw: rows in use and left out, kinds, levels, and some rows as examples."""

    rows: int = 0
    missing: int = 0
    weightless: int = 0
    kinds: dict[str, str] = field(default_factory=dict)
    levels: dict[str, dict[Any, None]] = field(default_factory=dict)  # in order, for categories
    ordered: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # categories of categorical columns
    examples: pd.DataFrame | None = None


@dataclass(frozen=True, eq=False)
class Common:
    """What all processes agree on.

    Attributes:
        formula: Taken apart.
        names: Of the raw columns.
        design: Of a few rows; its recipe and names hold for all.
        levels: Of the response, where it is text: the second counts as 1.
        weights: The name of the column of weights, or None.
        missing: "drop" or "error".
        rows: Rows in use in every process.
        left_out: Rows with missing values, and rows of weight zero, in all processes.
    """

    formula: Formula
    names: tuple[str, ...]
    design: Design
    levels: tuple[Any, ...]
    weights: str | None
    missing: str
    rows: tuple[int, ...]
    left_out: tuple[int, int]

    @property
    def recipe(self) -> ColumnRecipe:
        """How the columns are made."""
        return self.design.columns


def find_common(formula: Formula, table: Table, weights: Any, missing: str) -> Common:
    """Read all rows once and agree on the columns.

    Raises:
        ValueError: In all processes, where one has no rows, or they differ in columns or kinds.
    """
    if weights is not None and not isinstance(weights, str):
        raise ValueError("weights must be the name of a column where rows are read in pieces or by many processes.")
    _refuse_learned(formula)
    names, factors = raw_columns(formula)
    asked = (*names, *([weights] if weights is not None else []))
    own = checked(lambda: _look(formula, table, asked, factors, weights, missing))
    all_seen = collect(own)
    without = [at for at, seen in enumerate(all_seen) if seen.rows == 0]
    if without:
        who = "the data has" if count() == 1 else f"process {', '.join(map(str, without))} of {count()} has"
        raise ValueError(f"{who} no rows in use. Give every process at least one, or start fewer processes.")
    require_agreement({f"the kind of column {name!r}": own.kinds.get(name) for name in names}, "they are not one table")
    levels = {name: _join([seen.levels.get(name, {}) for seen in all_seen], name, all_seen) for name in own.levels}
    response = tuple(levels.pop(formula.response, ()))
    examples = _examples(all_seen, levels, formula)
    if response:
        examples[formula.response] = 0.0
    design = build_design(formula, examples, "error", weights)
    rows = tuple(seen.rows for seen in all_seen)
    left_out = sum(seen.missing for seen in all_seen), sum(seen.weightless for seen in all_seen)
    return Common(formula, asked, design, response, weights, missing, rows, left_out)


class Used(NamedTuple):
    """The rows of a piece that are in use, and how many were left out for missing values and for weight zero."""

    frame: pd.DataFrame
    missing: int
    weightless: int


def in_use(frame: pd.DataFrame, names: tuple[str, ...], weights: str | None, missing: str) -> Used:
    """Return the rows of a piece that are in use."""
    absent = np.zeros(len(frame), bool)
    for name in names:
        absent |= read_column(frame, name).isna().to_numpy(dtype=bool)
    zero = np.zeros(len(frame), bool) if weights is None else (read_column(frame, weights) == 0).to_numpy(dtype=bool)
    absent &= ~zero
    if missing not in ("drop", "error") or (missing == "error" and absent.any()):
        complete_rows(frame, list(names), missing, read_weights(weights, frame))  # which says what is wrong
    rest = frame.loc[~(absent | zero)] if absent.any() or zero.any() else frame
    if len(rest):
        check_finite(rest, list(names))
        read_weights(weights, rest)
    return Used(rest, int(absent.sum()), int(zero.sum()))


def _look(
    formula: Formula, table: Table, names: tuple[str, ...], factors: frozenset[str], weights: str | None, missing: str
) -> Seen:
    seen = Seen()
    for piece in table.read(names):
        frame, absent, zero = in_use(piece, names, weights, missing)
        seen.rows, seen.missing, seen.weightless = seen.rows + len(frame), seen.missing + absent, seen.weightless + zero
        if not len(frame):
            continue
        for name in names:
            if name not in formula.group_columns:
                _note(seen, name, read_column(frame, name), name in factors)
        if seen.examples is None:
            seen.examples = pd.DataFrame(frame.loc[:, list(names)].head(EXAMPLES)).reset_index(drop=True)
    return seen


def _note(seen: Seen, name: str, column: pd.Series, as_factor: bool) -> None:
    kind = column_kind(column)
    before = seen.kinds.setdefault(name, kind)
    if kind != before:
        raise ValueError(
            f"column {name!r} holds {before} values in one piece and {kind} values in another. Make it one."
        )
    if kind != "factor" and not as_factor:
        return
    levels = seen.levels.setdefault(name, {})
    levels.update(dict.fromkeys(plain_level(level) for level in column.unique()))
    if isinstance(column.dtype, pd.CategoricalDtype):
        seen.ordered.setdefault(name, tuple(plain_level(level) for level in column.cat.categories))
    if len(levels) > MOST_LEVELS:
        raise ValueError(
            f"column {name!r} has over {MOST_LEVELS:,} levels. Use a random effect, (1 | {name}), or fewer levels."
        )


def _join(parts: list[dict[Any, None]], name: str, all_seen: list[Seen]) -> list[Any]:
    """Return the levels of all processes: categories in their order, all else sorted."""
    found = {level: None for part in parts for level in part}
    orders = [seen.ordered[name] for seen in all_seen if name in seen.ordered]
    if orders:
        if any(order != orders[0] for order in orders):
            raise ValueError(
                f"the processes differ in the categories of column {name!r}: {listing(orders[0])} and others. Give "
                "all of them the same categories in the same order."
            )
        return [level for level in orders[0] if level in found]
    return sorted(found)


def _examples(all_seen: list[Seen], levels: dict[str, list[Any]], formula: Formula) -> pd.DataFrame:
    """Return a few rows, and for every level one that has it."""
    head = next(seen.examples for seen in all_seen if seen.examples is not None)
    size = len(head) + sum(map(len, levels.values()))
    frame = head.iloc[np.arange(size) % len(head)].reset_index(drop=True).copy()
    at = len(head)
    for name, found in levels.items():
        values = frame[name].astype(object).to_numpy(copy=True)
        values[at : at + len(found)] = found
        is_number = isinstance(found[0], int | float) and not isinstance(found[0], bool)
        ordered = any(name in seen.ordered for seen in all_seen)
        frame[name] = pd.Categorical(values, found) if ordered else (values.astype(float) if is_number else values)
        if is_number and all(isinstance(level, int) for level in found):
            frame[name] = frame[name].astype(np.int64)
        at += len(found)
    for name in formula.group_columns:  # they are looked at elsewhere
        frame[name] = np.arange(size)
    return frame


def _refuse_learned(formula: Formula) -> None:
    words = (*STATEFUL, *BASES)
    used = [word for word in words if f"{word}(" in formula.fixed + formula.random + formula.response]
    if used:
        raise ValueError(
            f"{used[0]}() learns from all rows at once, and here they are read in pieces or by many processes. Put the "
            "transformed column into the data, or leave it out: the default prior needs no centring or scaling."
        )
