"""Means, sds and ranges of columns, piece by piece, and what they say of the columns' standard form."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from natvi.formula.margins import Margins, Products, centring_map
from natvi.models.regression.prior.standard import CELL, INTERCEPT, SLOPE, StandardColumns


class Columns(NamedTuple):
    """Weighted means (of a constant column its value), sds, and half the distance of two values (NaN for others)."""

    mean: np.ndarray
    sd: np.ndarray
    half_range: np.ndarray

    def take(self, at: slice) -> "Columns":
        """Return some of the columns."""
        return Columns(*(part[at] for part in self))


class _Sums(NamedTuple):
    """Total weight, means, and weighted sums of squares about the means."""

    weight: float
    mean: np.ndarray
    squares: np.ndarray

    def join(self, other: "_Sums") -> "_Sums":
        """Put two parts of the data together; sums of squares about a common mean lose no digits."""
        weight = self.weight + other.weight
        if weight == 0:
            return self
        apart, share = other.mean - self.mean, other.weight / weight
        return _Sums(weight, self.mean + share * apart, self.squares + other.squares + self.weight * share * apart**2)


class ColumnMoments:
    """Takes in pieces of columns."""

    def __init__(self) -> None:
        """Begin."""
        self._sums = _Sums(0.0, np.zeros(()), np.zeros(()))
        self._values = np.zeros((2, 0))  # the first value of every column and another, NaN where there is none
        self._more = np.zeros(0, bool)

    @property
    def weight(self) -> float:
        """The total weight."""
        return self._sums.weight

    def add(self, columns: np.ndarray, weight: np.ndarray | None) -> None:
        """Look at more rows."""
        w = np.ones(len(columns)) if weight is None else weight
        total = float(w.sum())
        mean = w @ columns / total if total > 0 else columns[0]
        self._sums = self._sums.join(_Sums(total, mean, w @ (columns - mean) ** 2))
        if not self._values.shape[1]:
            self._values = np.stack([columns[0], np.full(columns.shape[1], np.nan)])
            self._more = np.zeros(columns.shape[1], bool)
        open_ = np.flatnonzero(~self._more)  # few after the first rows
        if not len(open_):
            return
        looked = columns[:, open_]
        differs = looked != self._values[0, open_]
        for k, at in enumerate(open_):
            if np.isnan(self._values[1, at]) and differs[:, k].any():
                self._values[1, at] = looked[np.argmax(differs[:, k]), k]
        self._more[open_] |= np.any(differs & (looked != self._values[1, open_]), axis=0)

    def join(self, other: "ColumnMoments") -> None:
        """Take in what was found elsewhere."""
        self._sums = self._sums.join(other._sums)
        for at in range(self._values.shape[1]):
            values = np.concatenate([self._values[:, at], other._values[:, at]])
            distinct = list(dict.fromkeys(values[~np.isnan(values)].tolist()))
            self._more[at] |= other._more[at] or len(distinct) > 2
            self._values[:, at] = (distinct + [np.nan])[:2]

    def columns(self) -> Columns:
        """Return what was found."""
        first, other = self._values
        varies = ~np.isnan(other)
        sd = np.where(varies, np.sqrt(self._sums.squares / max(self._sums.weight, 1e-300)), 0.0)
        half = np.where(self._more, np.nan, 0.5 * np.abs(other - first))
        return Columns(np.where(varies, self._sums.mean, first), sd, half)


def standard_form(
    found: Columns, products: Products, centred: bool, look: Callable[[np.ndarray, np.ndarray], Columns]
) -> StandardColumns:
    """Return what `standard_columns` would say of all rows.

    Args:
        found: Of the columns X.
        products: What they are products of.
        centred: False keeps the user's zero.
        look: Reads all rows again, for the columns of X K that a flag chooses: products of centred numbers.
    """
    mean, sd, _ = found
    # two rows with the means of all: what depends on means alone can be asked of them
    two = np.stack([mean + sd, mean - sd])
    margins = Margins(products, two)
    constant = margins.constant
    if constant is None or not centred:
        return StandardColumns(None, _positive(np.hypot(mean, sd)), (SLOPE,) * len(mean), constant or {})
    K = centring_map(products, margins, two, None)
    role = INTERCEPT if len(constant) == 1 else CELL
    roles = tuple(role if at in constant else SLOPE for at in range(len(mean)))
    sizes = _sizes(found)
    if np.array_equal(K, np.eye(len(K))):
        return StandardColumns(None, sizes, roles, constant)
    others = K - np.eye(len(K))
    others[list(constant)] = 0.0
    mixed = np.asarray(others.any(axis=0)) if len(constant) == 1 else np.ones(len(K), bool)
    if mixed.any():
        sizes[mixed] = _sizes(look(K, mixed))
    return StandardColumns(K, sizes, roles, constant)


def _sizes(found: Columns) -> np.ndarray:
    mean, sd, half = found
    return _positive(np.where(sd == 0, np.abs(mean), np.where(np.isnan(half), sd, half)))


def _positive(sizes: np.ndarray) -> np.ndarray:
    return np.where((sizes > 0) & np.isfinite(sizes), sizes, 1.0)
