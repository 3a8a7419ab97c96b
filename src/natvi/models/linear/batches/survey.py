"""The first pass over rows that do not fit into memory: their number, means and sds, and a random sample of them."""

from typing import Any, NamedTuple

import numpy as np

from natvi.families.table import Family
from natvi.models.linear.batches.source import RowSource
from natvi.models.linear.rows import GlmRows
from natvi.models.regression.priors import Prior, choose_prior

SAMPLE_ROWS, ROWS_PER_COLUMN = 2048, 20


class Survey(NamedTuple):
    """What the first pass found.

    Attributes:
        num_rows: The number of rows.
        mean: Weighted means of the columns of X, then of y; of a constant column its value.
        sd: Their weighted sds; exactly zero for constant ones.
        constant: What the log-likelihood of the rows lacks, such as log binomial coefficients.
        sample: Rows chosen at random, all of them where they are few.
    """

    num_rows: int
    mean: np.ndarray
    sd: np.ndarray
    constant: float
    sample: GlmRows


class _Moments(NamedTuple):
    """Total weight, means, and weighted sums of squares about the means."""

    weight: float
    mean: np.ndarray
    squares: np.ndarray

    def join(self, other: "_Moments") -> "_Moments":
        """Put two parts of the data together; sums of squares about a common mean lose no digits."""
        weight = self.weight + other.weight
        if weight == 0:
            return self
        apart, share = other.mean - self.mean, other.weight / weight
        return _Moments(
            weight, self.mean + share * apart, self.squares + other.squares + self.weight * share * apart**2
        )


def survey_rows(source: RowSource, family: Family) -> Survey:
    """Read all rows once, and check them on the way.

    Raises:
        ValueError: For rows that are not as they should be, or a response that is the same in all of them.
    """
    moments, constant, seen = _Moments(0.0, np.zeros(()), np.zeros(())), 0.0, 0
    first, varies = np.zeros(0), np.zeros(0, dtype=bool)
    sample = _Sample()
    for rows in source.read():
        columns = np.column_stack([rows.X, rows.y])
        if seen == 0:
            first, varies = columns[0].copy(), np.zeros(columns.shape[1], dtype=bool)
        varies |= np.any(columns != first, axis=0)
        moments = moments.join(_moments_of(columns, rows.weight))
        constant += rows.constant
        seen += len(rows.y)
        sample.add(rows)
    if moments.weight == 0:
        raise ValueError(f"none of the {seen:,} weights is positive. Give at least one row a weight.")
    if not varies[-1] and (family.name != "binomial" or first[-1] in (0.0, 1.0)):
        raise ValueError(
            f"all {seen:,} values of y equal {first[-1]:g}: there is nothing to learn from them. Check y and any "
            "filter applied to the data."
        )
    sd = np.where(varies, np.sqrt(moments.squares / moments.weight), 0.0)
    return Survey(seen, np.where(varies, moments.mean, first), sd, constant, sample.rows())


def prior_of_survey(prior: Any, family: Family, survey: Survey, names: tuple[str, ...]) -> Prior:
    """Return the prior that all rows in memory would have had: two rows, a sd either side, have their means and sds."""
    two = np.stack([survey.mean - survey.sd, survey.mean + survey.sd])
    y, X, none = two[:, -1], two[:, :-1], np.zeros((2, 0))
    return choose_prior(prior, family.name, y, X, none, family.has_dispersion, names=names)


def _moments_of(columns: np.ndarray, weight: np.ndarray | None) -> _Moments:
    w = np.ones(len(columns)) if weight is None else weight
    total = float(w.sum())
    mean = w @ columns / total if total > 0 else columns[0]
    return _Moments(total, mean, w @ (columns - mean) ** 2)


class _Sample:
    """Every row gets a random number, and those with the smallest numbers are kept."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._keys = np.zeros(0)
        self._kept: GlmRows | None = None

    def add(self, rows: GlmRows) -> None:
        """Look at more rows."""
        size = max(SAMPLE_ROWS, ROWS_PER_COLUMN * rows.X.shape[1])
        keys = np.append(self._keys, self._rng.random(len(rows.y)))
        together = rows if self._kept is None else _each(lambda a, b: np.concatenate([a, b]), self._kept, rows)
        if len(keys) <= size:
            chosen = np.arange(len(keys))
        else:
            chosen = np.sort(np.argpartition(keys, size)[:size])
        self._keys, self._kept = keys[chosen], _each(lambda a: a[chosen], together)

    def rows(self) -> GlmRows:
        """Return the rows kept."""
        assert self._kept is not None
        return self._kept


def _each(function: Any, *rows: GlmRows) -> GlmRows:
    return GlmRows(*(None if parts[0] is None else function(*parts) for parts in zip(*rows, strict=True)))  # type: ignore[arg-type]
