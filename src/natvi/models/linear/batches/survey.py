"""The first pass over rows that do not fit into memory: their number, means and sds, and a random sample of them."""

from typing import Any, NamedTuple

import numpy as np

from natvi.families.table import Family
from natvi.models.linear.batches.source import RowSource
from natvi.models.regression.prior.choice import Prior, choose_prior
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.prior.response_scale import PREDICTORS, ResponseScale
from natvi.models.regression.prior.standard import INTERCEPT, SLOPE, StandardColumns
from natvi.models.regression.rows import Rows

SAMPLE_ROWS, ROWS_PER_COLUMN = 2048, 20


class Survey(NamedTuple):
    """What the first pass found.

    Attributes:
        num_rows: The number of rows.
        mean: Weighted means of the columns of X, then of y less its offset; of a constant column its value.
        sd: Their weighted sds; exactly zero for constant ones.
        half_range: Half the distance of the two values of columns that have two; NaN for others.
        constant: What the log-likelihood of the rows lacks, such as log binomial coefficients.
        sample: Rows chosen at random, all of them where they are few.
        totals: Weight, weighted responses, exposures e^offset, and responses over exposures, summed over the rows.
    """

    num_rows: int
    mean: np.ndarray
    sd: np.ndarray
    half_range: np.ndarray
    constant: float
    sample: Rows
    totals: np.ndarray


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
    first, varies, values = np.zeros(0), np.zeros(0, dtype=bool), _TwoValues()
    sample, totals = _Sample(), np.zeros(4)
    for rows in source.read():
        offset = np.zeros(len(rows.y)) if rows.offset is None else rows.offset
        columns = np.column_stack([rows.X, rows.y, rows.y - offset])
        totals += _totals(rows, offset)
        if seen == 0:
            first, varies = columns[0].copy(), np.zeros(columns.shape[1], dtype=bool)
        varies |= np.any(columns != first, axis=0)
        values.add(columns)
        moments = moments.join(_moments_of(columns, rows.weight))
        constant += rows.constant
        seen += len(rows.y)
        sample.add(rows)
    if moments.weight == 0:
        raise ValueError(f"none of the {seen:,} weights is positive. Give at least one row a weight.")
    if not varies[-2] and (family.name != "binomial" or first[-2] in (0.0, 1.0)):
        raise ValueError(
            f"all {seen:,} values of y equal {first[-2]:g}: there is nothing to learn from them. Check y and any "
            "filter applied to the data."
        )
    sd = np.where(varies, np.sqrt(moments.squares / moments.weight), 0.0)
    mean = np.where(varies, moments.mean, first)
    mean, sd, half_range = (np.delete(part, -2) for part in (mean, sd, values.half_range()))
    return Survey(seen, mean, sd, half_range, constant, sample.rows(), totals)


def prior_of_survey(prior: Any, family: Family, survey: Survey, names: tuple[str, ...]) -> Prior:
    """Return the prior that all rows in memory would have had; yes and no with an offset are taken from the sample."""
    rows, standard = survey.sample, _standard(survey)
    none = np.zeros((len(rows.y), 0))
    response = _response(survey, family, standard.has_constant)
    data = PriorData(rows.y, rows.X, none, rows.offset, rows.weight, standard=standard, response=response)
    return choose_prior(prior, family, data, names=names)


def _totals(rows: Rows, offset: np.ndarray) -> np.ndarray:
    w = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    exposure = np.exp(np.clip(offset, -700.0, 700.0))
    return np.array([w.sum(), w @ rows.y, w @ exposure, w @ (rows.y / exposure)])


def _response(survey: Survey, family: Family, has_constant: bool) -> ResponseScale | None:
    """Return where the response lies, from sums over all rows (`response_scale`); None where they do not tell."""
    weight, responses, exposures, ratios = survey.totals
    if family.link == "identity":
        mean, sd = float(survey.mean[-1]), float(survey.sd[-1])
        return ResponseScale(mean, sd) if has_constant else ResponseScale(0.0, float(np.hypot(mean, sd)))
    if family.link == "log":
        return ResponseScale(
            float(np.log(ratios / weight if family.name == "gamma" else (responses + 0.5) / exposures)), 1.0
        )
    if survey.sample.offset is None:
        return ResponseScale(float(PREDICTORS[family.link]((responses + 0.5) / (weight + 1.0))), 1.0)
    return None


def _standard(survey: Survey) -> StandardColumns:
    """Return the standard form of the columns of X, each a number by itself."""
    mean, sd, half = (part[:-1] for part in (survey.mean, survey.sd, survey.half_range))
    flat = np.flatnonzero((sd == 0) & (mean != 0))
    p = len(mean)
    if not len(flat):
        sizes = np.hypot(mean, sd)
        return StandardColumns(None, np.where(sizes > 0, sizes, 1.0), (SLOPE,) * p, {})
    at = int(flat[0])
    sizes = np.where(sd == 0, np.abs(mean), np.where(np.isnan(half), sd, half))
    K = np.eye(p)
    K[at] -= np.where(sd > 0, mean / mean[at], 0.0)
    roles = tuple(INTERCEPT if k == at else SLOPE for k in range(p))
    return StandardColumns(K, np.where(sizes > 0, sizes, 1.0), roles, {at: 1.0 / float(mean[at])})


class _TwoValues:
    """Notes which columns have two values, and which."""

    def __init__(self) -> None:
        self._first = self._other = np.zeros(0)
        self._more = np.zeros(0, dtype=bool)

    def add(self, columns: np.ndarray) -> None:
        """Look at more rows."""
        if not len(self._first):
            self._first = columns[0].copy()
            self._other, self._more = np.full(columns.shape[1], np.nan), np.zeros(columns.shape[1], dtype=bool)
        differs = columns != self._first
        for at in np.flatnonzero(np.isnan(self._other) & differs.any(axis=0)):
            self._other[at] = columns[np.argmax(differs[:, at]), at]
        self._more |= np.any(differs & (columns != self._other), axis=0)

    def half_range(self) -> np.ndarray:
        """Return half the distance of the two values, NaN for columns of one value or of more than two."""
        return np.where(self._more, np.nan, 0.5 * np.abs(self._other - self._first))


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
        self._kept: Rows | None = None

    def add(self, rows: Rows) -> None:
        """Look at more rows."""
        size = max(SAMPLE_ROWS, ROWS_PER_COLUMN * rows.X.shape[1])
        keys = np.append(self._keys, self._rng.random(len(rows.y)))
        together = rows if self._kept is None else _each(lambda a, b: np.concatenate([a, b]), self._kept, rows)
        if len(keys) <= size:
            chosen = np.arange(len(keys))
        else:
            chosen = np.sort(np.argpartition(keys, size)[:size])
        self._keys, self._kept = keys[chosen], _each(lambda a: a[chosen], together)

    def rows(self) -> Rows:
        """Return the rows kept."""
        assert self._kept is not None
        return self._kept


def _each(function: Any, *rows: Rows) -> Rows:
    return Rows(*(None if parts[0] is None else function(*parts) for parts in zip(*rows, strict=True)))  # type: ignore[arg-type]
