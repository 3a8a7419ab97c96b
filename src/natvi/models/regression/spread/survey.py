"""One pass over the rows of all processes: their number, means and sds of every column, a sample, and a mark.

The result is the same in every process, and but for rounding the same however the rows are divided.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from natvi.families.table import Family
from natvi.hosts.collect import checked, collect
from natvi.models.regression.prior.response_scale import PREDICTORS, ResponseScale
from natvi.models.regression.rows import Rows
from natvi.models.regression.spread.moments import ColumnMoments, Columns

SAMPLE_ROWS, ROWS_PER_COLUMN = 2048, 20
KEYS = 0x9E3779B97F4A7C15


class Survey(NamedTuple):
    """What the first pass found.

    Attributes:
        num_rows: The number of rows.
        X: Means, sds and half ranges of the columns of X.
        Z: The same of Z.
        y: Mean and sd of y less its offset.
        constant: What the log-likelihood of the rows lacks, such as log binomial coefficients.
        sample: Rows chosen at random, all of them where they are few.
        totals: Weight, weighted responses, exposures e^offset, and responses over exposures, summed over the rows.
        mark: A number that another row, or another value, would change.
        own_rows: The number of rows of this process.
    """

    num_rows: int
    X: Columns
    Z: Columns
    y: Columns
    constant: float
    sample: Rows
    totals: np.ndarray
    mark: int
    own_rows: int

    def mark_of(self, words: str) -> tuple[np.ndarray, ...]:
        """Return numbers that tell these rows and a model of them from others, however the rows are divided."""
        return np.array([self.mark], np.uint64), np.array([self.num_rows]), np.frombuffer(words.encode(), np.uint8)


class Part:
    """What one process finds; parts are joined in the order of the processes."""

    def __init__(self, first_row: int) -> None:
        """Begin at a row of the whole data."""
        self.rows, self.constant, self.totals, self.mark = 0, 0.0, np.zeros(4), 0
        self.moments, self.sample = ColumnMoments(), Sample()
        self.first_row, self.first_y, self.widths = first_row, 0.0, (0, 0)

    def add(self, rows: Rows) -> None:
        """Look at more rows."""
        offset = np.zeros(len(rows.y)) if rows.offset is None else rows.offset
        Z = np.zeros((len(rows.y), 0)) if rows.Z is None else rows.Z
        columns = np.column_stack([rows.X, Z, rows.y, rows.y - offset])
        self.widths = rows.X.shape[1], Z.shape[1]
        self.moments.add(columns, rows.weight)
        self.sample.add(rows, self.first_row + self.rows)
        self.totals += _totals(rows, offset)
        self.mark = (self.mark + row_marks(columns, rows.weight)) % 2**64
        self.constant += rows.constant
        self.rows += len(rows.y)

    def join(self, other: "Part") -> None:
        """Take in what the next process found."""
        self.moments.join(other.moments)
        self.sample.join(other.sample)
        self.totals = self.totals + other.totals
        self.mark = (self.mark + other.mark) % 2**64
        self.constant += other.constant
        self.rows += other.rows


def survey_rows(pieces: Callable[[], Iterable[Rows]], family: Family, rows_of_each: tuple[int, ...] | None) -> Survey:
    """Read all rows once, and check them on the way.

    Args:
        pieces: Opens this process's rows.
        family: The response distribution.
        rows_of_each: The number of rows of every process, where it is known; the sample then does not depend on how
            the rows are divided.

    Raises:
        ValueError: For rows that are not as they should be, or a response that is the same in all of them.
    """
    from natvi.hosts.collect import number

    own = Part(0 if rows_of_each is None else sum(rows_of_each[: number()]))

    def look() -> None:
        for rows in pieces():
            own.add(rows)

    checked(look)
    own_rows = own.rows
    parts = collect(own)
    whole = parts[0]
    for part in parts[1:]:
        whole.join(part)
    found = whole.moments.columns()
    if whole.moments.weight == 0:
        raise ValueError(f"none of the {whole.rows:,} weights is positive. Give at least one row a weight.")
    p, r = whole.widths
    level, equal = float(found.mean[-2]), found.sd[-2] == 0
    if equal and (family.name != "binomial" or level in (0.0, 1.0)):
        raise ValueError(
            f"all {whole.rows:,} values of y equal {level:g}: there is nothing to learn from them. Check y and any "
            "filter applied to the data."
        )
    X, Z, y = (found.take(slice(*ends)) for ends in ((0, p), (p, p + r), (p + r + 1, p + r + 2)))
    return Survey(whole.rows, X, Z, y, whole.constant, whole.sample.rows(), whole.totals, whole.mark, own_rows)


def response_of(survey: Survey, family: Family, has_constant: bool) -> ResponseScale | None:
    """Return where the response lies, from sums over all rows (`response_scale`); None where they do not tell."""
    weight, responses, exposures, ratios = survey.totals
    if family.link == "identity":
        mean, sd = float(survey.y.mean[0]), float(survey.y.sd[0])
        return ResponseScale(mean, sd) if has_constant else ResponseScale(0.0, float(np.hypot(mean, sd)))
    if family.link == "log":
        return ResponseScale(
            float(np.log(ratios / weight if family.name == "gamma" else (responses + 0.5) / exposures)), 1.0
        )
    if survey.sample.offset is None:
        return ResponseScale(float(PREDICTORS[family.link]((responses + 0.5) / (weight + 1.0))), 1.0)
    return None


def _totals(rows: Rows, offset: np.ndarray) -> np.ndarray:
    w = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    exposure = np.exp(np.clip(offset, -700.0, 700.0))
    return np.array([w.sum(), w @ rows.y, w @ exposure, w @ (rows.y / exposure)])


def row_marks(columns: np.ndarray, weight: np.ndarray | None) -> int:
    """Return a sum over rows of a mark of each, modulo 2^64: the order of the rows does not matter."""
    with np.errstate(over="ignore"):
        bits = np.ascontiguousarray(columns, dtype=np.float64).view(np.uint64).reshape(columns.shape)
        odd = np.random.default_rng(0).integers(0, 2**63, columns.shape[1] + 1, dtype=np.uint64) * np.uint64(
            2
        ) + np.uint64(1)
        marks = _mixed((bits * odd[:-1]).sum(axis=1, dtype=np.uint64))
        if weight is not None:
            marks = _mixed(marks + np.ascontiguousarray(weight, dtype=np.float64).view(np.uint64) * odd[-1])
        return int(marks.sum(dtype=np.uint64))


def _mixed(x: np.ndarray) -> np.ndarray:
    """Return 64-bit numbers with their bits well mixed (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


class Sample:
    """Every row has a number that looks random, made of its place in the whole data; the smallest are kept."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._keys = np.zeros(0, np.uint64)
        self._kept: Rows | None = None

    def add(self, rows: Rows, first_row: int) -> None:
        """Look at more rows."""
        place = np.arange(first_row, first_row + len(rows.y), dtype=np.uint64)
        with np.errstate(over="ignore"):
            keys = _mixed((place + np.uint64(1)) * np.uint64(KEYS))
        size = self._size(rows)
        if len(self._keys) == size:  # most rows are out at once
            near = keys < self._keys.max()
            if not near.any():
                return
            keys, rows = keys[near], rows.take(near)
        self._keep(keys, rows)

    def join(self, other: "Sample") -> None:
        """Take in the sample of other rows."""
        if other._kept is not None:
            self._keep(other._keys, other._kept)

    def _keep(self, keys: np.ndarray, rows: Rows) -> None:
        keys = np.append(self._keys, keys)
        together = rows if self._kept is None else _each(lambda a, b: np.concatenate([a, b]), self._kept, rows)
        size = self._size(rows)
        chosen = np.arange(len(keys)) if len(keys) <= size else np.sort(np.argpartition(keys, size)[:size])
        self._keys, self._kept = keys[chosen], together.take(chosen)

    @staticmethod
    def _size(rows: Rows) -> int:
        return max(SAMPLE_ROWS, ROWS_PER_COLUMN * rows.X.shape[1])

    def rows(self) -> Rows:
        """Return the rows kept."""
        assert self._kept is not None
        return self._kept


def _each(function: Any, *rows: Rows) -> Rows:
    return Rows(*(None if parts[0] is None else function(*parts) for parts in zip(*rows, strict=True)))  # type: ignore[arg-type]
