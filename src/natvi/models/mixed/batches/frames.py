"""Batches of whole groups from data frames that need never be in memory together."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from natvi.formula.design import build_design, parse_formula
from natvi.formula.frames import as_frame
from natvi.formula.margins import products_of
from natvi.formula.raw_columns import read_column
from natvi.models.mixed.batches.state import BatchNames
from natvi.run.batches.group_batches import GroupBatch, GroupedPieces


class GroupedFrames:
    """A formula applied to data frames, one after the other; each holds whole groups.

    The first frame decides the columns: it must show every level of every factor. Rows may not have missing values, and
    the response must be a column of numbers.

    Args:
        formula: As in `glmm`, e.g. `"y ~ x + (1 | subject)"`.
        open_frames: A function of the epoch's number that returns an iterator over data frames: the same frames in the
            same order in every epoch, no group in two of them. `lambda epoch: pandas.read_csv(path, chunksize=...)`
            will do if the chunks end between groups.
        num_groups: The number of groups of the whole data.
        weights: The name of a column that says how often each row counts.
    """

    def __init__(
        self,
        formula: str,
        open_frames: Callable[[int], Iterable[pd.DataFrame]],
        num_groups: int,
        *,
        weights: str | None = None,
    ) -> None:
        """Read the formula and look at the first frame."""
        parsed = parse_formula(formula)
        if parsed.terms:
            raise ValueError(
                f"the formula {formula!r} has several grouping factors, and batches of groups know one: effects of a "
                "second factor belong to rows of many batches. Fit all rows at once with natvi.glmm (2 million rows "
                "take a few GiB), or keep one factor, (1 | g)."
            )
        if parsed.group is None:
            raise ValueError(f"The formula {formula!r} has no random effects: there are no groups to make batches of.")
        self._open, self._group, self._weights = open_frames, parsed.group, weights
        first = as_frame(next(iter(open_frames(0))))
        if parsed.response not in first.columns:
            raise ValueError(
                f"not yet supported: the response {parsed.response!r} in batches. Give a column of numbers; for "
                "trials, a column of proportions, and the trials as weights."
            )
        design = build_design(parsed, first, "error", weights)
        self._recipe, self._response = design.columns, parsed.response
        self.names = BatchNames(design.fixed_names, design.random_names, parsed.group, design.correlated)
        self.products = products_of(design.columns.fixed), products_of(design.columns.random)
        self._pieces = GroupedPieces(self._read_frames, num_groups)
        self.num_groups = num_groups

    def read(self, epoch: int) -> Iterator[GroupBatch]:
        """Return the frames of one epoch as batches."""
        return self._pieces.read(epoch)

    def _numbers(self, response: pd.Series) -> np.ndarray:
        try:
            return response.to_numpy(dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The response {self._response!r} must be a column of numbers in batches, and holds "
                f"{response.iloc[0]!r}: code two answers as 0 and 1 before, e.g. (frame[{self._response!r}] == "
                f"{response.iloc[0]!r}).astype(int)."
            ) from error

    def _read_frames(self, epoch: int) -> Iterator[Mapping[str, Any]]:
        for data in self._open(epoch):
            frame = as_frame(data)
            X, Z, offset = self._recipe.apply(frame)
            y = self._numbers(read_column(frame, self._response))
            if not np.all(np.isfinite(y)):
                raise ValueError(f"The response {self._response!r} has missing or infinite values: remove those rows.")
            rows = {"X": X, "Z": Z, "y": y, "offset": offset, "group": read_column(frame, self._group).to_numpy()}
            if self._weights is not None:
                rows["weight"] = read_column(frame, self._weights).to_numpy(dtype=np.float64)
            yield rows
