"""From data frames, one after the other, to columns on disk: a formula is applied to every row once.

The first frame decides the columns and the scale of the prior. Levels are numbered as they come, and put in order at
the end.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from natvi.families.table import Family
from natvi.formula.design import Design, Formula, build_design
from natvi.formula.frames import as_frame
from natvi.formula.grouping.levels import level_labels
from natvi.formula.raw_columns import read_column
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.response import encode_response

PIECE = 1_000_000  # rows whose levels are renumbered at a time
NAMES = ("X", "Z", "offset", "y", "weight")


class Spooled(NamedTuple):
    """Columns on disk.

    Attributes:
        design: Whose arrays are memory-mapped; columns are the prior's coordinates.
        y: Responses.
        weight: How often each row counts, or None.
    """

    design: Design
    y: np.ndarray
    weight: np.ndarray | None


class _Levels:
    """The levels of a factor, numbered as they come."""

    def __init__(self) -> None:
        self.labels = pd.Index([], dtype=object)

    def number(self, labels: pd.Series, group: str) -> np.ndarray:
        """Return the numbers of some rows' levels."""
        if labels.isna().any():
            raise ValueError(f"the grouping factor {group!r} has missing values: remove those rows.")
        plain = pd.Index(labels.to_numpy(dtype=object))
        self.labels = self.labels.append(plain.unique().difference(self.labels, sort=False))
        return self.labels.get_indexer(plain).astype(np.int64)

    def order(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels in sorted order, and the place there of each number."""
        labels = self.labels.infer_objects()
        order = np.asarray(labels.argsort())
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order), dtype=np.int64)
        return np.asarray(labels[order]), place


def spool(
    formula: Formula,
    first: Design,
    frames: Iterable[Any],
    family: Family,
    prior: Prior,
    weights: str | None,
    folder: Path,
) -> Spooled:
    """Write every row's columns to files and open them again as memory-mapped arrays."""
    factors = {term.columns: _Levels() for term in first.terms}
    files = {name: (folder / name).open("wb") for name in NAMES}
    own = {key: (folder / f"codes{k}").open("wb") for k, key in enumerate(factors)}
    num_rows = 0
    try:
        for data in frames:
            frame = as_frame(data)
            columns = _columns(formula, first, frame, family, prior, weights)
            for name in NAMES:
                columns[name].tofile(files[name])
            for key, levels in factors.items():
                levels.number(level_labels(frame, key), ":".join(key)).tofile(own[key])
            num_rows += len(frame)
    finally:
        for file in (*files.values(), *own.values()):
            file.close()
    if not num_rows:
        raise ValueError("open_frames gave no rows.")
    opened = {name: np.memmap(folder / name, dtype=np.float64, mode="r") for name in NAMES}
    terms, found = [], {key: levels.order() for key, levels in factors.items()}
    codes = {key: _renumber(folder / f"codes{k}", found[key][1]) for k, key in enumerate(factors)}
    for term in first.terms:
        terms.append(replace(term, codes=codes[term.columns], labels=found[term.columns][0]))
    design = replace(
        first,
        X=opened["X"].reshape(num_rows, -1),
        Z=opened["Z"].reshape(num_rows, -1),
        offset=opened["offset"],
        rows=np.zeros(0, dtype=np.int64),
        weights=None,
        terms=tuple(terms),
    )
    return Spooled(design, opened["y"], opened["weight"] if weights else None)


def _columns(
    formula: Formula, first: Design, frame: pd.DataFrame, family: Family, prior: Prior, weights: str | None
) -> dict[str, np.ndarray]:
    X, Z, offset = first.columns.apply(frame)
    response = encode_response(
        read_column(frame, formula.response), formula.response, family.name, None, may_be_equal=True
    )
    weight = np.ones(len(frame)) if weights is None else read_column(frame, weights).to_numpy(dtype=np.float64)
    if not np.all(weight > 0):
        raise ValueError(f"the weights {weights!r} must be positive numbers: remove rows of weight zero.")
    X, Z = prior.coordinates.columns(X), prior.coordinates.random_columns(Z)
    offset = np.zeros(len(frame)) if offset is None else offset
    found = {"X": X, "Z": Z, "offset": offset, "y": response.values, "weight": weight}
    return {name: np.ascontiguousarray(part, dtype=np.float64) for name, part in found.items()}


def _renumber(path: Path, place: np.ndarray) -> np.ndarray:
    codes = np.memmap(path, dtype=np.int64, mode="r+")
    for at in range(0, len(codes), PIECE):
        codes[at : at + PIECE] = place[codes[at : at + PIECE]]
    return codes


def first_frame(open_frames: Callable[[int], Iterable[Any]], formula: Formula, weights: str | None) -> Design:
    """Return the design of the first frame, which decides the columns."""
    frames: Iterator[Any] = iter(open_frames(0))
    data = next(frames, None)
    if data is None:
        raise ValueError("open_frames(0) gave no data frame.")
    frame = as_frame(data)
    if formula.response not in frame.columns:
        raise ValueError(
            f"not yet supported: the response {formula.response!r} in batches. Give a column of numbers; for trials, a "
            "column of proportions, and the trials as weights."
        )
    return build_design(formula, frame, "error", weights)
