"""Columns in standard form: numbers centred before products are formed, each column with a size to scale it by.

The size d of a column, once centred, is its sd, half its range where it has two values, and |x| where it is constant.
Where no constant lies in the span of the columns nothing is centred, and sizes are root mean squares.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from natvi.formula.margins import Margins, Products, centring_map, column_means, row_blocks
from natvi.models.regression.coordinates import transform

INTERCEPT, CELL, SLOPE = "intercept", "cell", "slope"
SAME = 1e-9  # of the range: values that rounding has moved apart


class StandardColumns(NamedTuple):
    """How columns are brought to standard form.

    Attributes:
        centring: K, with X K the columns centred; None where none is.
        sizes: The size d of every centred column.
        roles: "intercept"; "cell", a level of a factor in a model without an intercept; or "slope".
        constant: Weights of the columns that add up to one; empty where no constant lies in their span.
    """

    centring: np.ndarray | None
    sizes: np.ndarray
    roles: tuple[str, ...]
    constant: Mapping[int, float]

    @property
    def has_constant(self) -> bool:
        """Whether a constant lies in the span of the columns."""
        return bool(self.constant)

    @property
    def map(self) -> np.ndarray:
        """M = K diag(1/d)."""
        K = np.eye(len(self.sizes)) if self.centring is None else self.centring
        return K / self.sizes


def standard_columns(
    X: np.ndarray, products: Products, weights: np.ndarray | None = None, centred: bool = True
) -> StandardColumns:
    """Find the standard form of columns.

    Args:
        X: The columns `(n, p)`.
        products: What they are products of.
        weights: How often each row counts.
        centred: False keeps the user's zero, and takes sizes as without a constant.

    Returns:
        How to standardise them.
    """
    margins = Margins(products, X)
    constant = margins.constant
    if constant is None or not centred:
        return StandardColumns(None, _rms(X, weights), (SLOPE,) * X.shape[1], constant or {})
    K = centring_map(products, margins, X, weights)
    role = INTERCEPT if len(constant) == 1 else CELL  # several columns add up to one as levels of factors only
    roles = tuple(role if at in constant else SLOPE for at in range(X.shape[1]))
    if np.array_equal(K, np.eye(len(K))):
        return StandardColumns(None, column_sizes(X, weights), roles, constant)
    return StandardColumns(K, _sizes_inside(X, K, constant, weights), roles, constant)


def _sizes_inside(
    X: np.ndarray, K: np.ndarray, constant: Mapping[int, float], weights: np.ndarray | None
) -> np.ndarray:
    """Return the sizes of X K; a column from which its mean is taken, and no more, keeps its size."""
    others = K - np.eye(len(K))
    others[list(constant)] = 0.0
    mixed = others.any(axis=0) if len(constant) == 1 else np.ones(len(K), bool)
    sizes = np.empty(len(K))
    sizes[~mixed] = column_sizes(X[:, ~mixed] if mixed.any() else X, weights)
    if mixed.any():
        sizes[mixed] = column_sizes(transform(X, K)[:, mixed], weights)
    return sizes


def column_sizes(columns: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the size of every column: sd, half the range of two values, |x| of one value; 1 for zeros.

    Example:
        >>> column_sizes(np.array([[3.0, 0.0, 1.0], [3.0, 1.0, 2.0], [3.0, 1.0, 3.0]])).round(3).tolist()
        [3.0, 0.5, 0.816]
    """
    low, high = ends = _ends(columns)
    slack = SAME * (high - low)
    sizes = np.where(low == high, np.abs(low), 0.5 * high - 0.5 * low)
    two = np.ones(columns.shape[1], bool)
    for rows in row_blocks(columns):
        left = np.flatnonzero(two)  # few after the first rows
        x = columns[rows] if len(left) == len(two) else columns[rows, left]
        two[left] = np.all((x <= (low + slack)[left]) | (x >= (high - slack)[left]), axis=0)
    sizes = np.where(two, sizes, _about(columns, column_means(columns, weights), weights, ends))
    return np.where((sizes > 0) & np.isfinite(sizes), sizes, 1.0)


def spread(x: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the sd of a column, by weight; of numbers of any size."""
    column = x[:, None]
    return float(_about(column, column_means(column, weights), weights)[0])


def root_mean_square(x: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the root mean square of a column, by weight; of numbers of any size."""
    return float(_about(x[:, None], np.zeros(1), weights)[0])


def _about(
    X: np.ndarray,
    centre: np.ndarray,
    weights: np.ndarray | None,
    ends: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Return the root mean squares of X - centre."""
    low, high = _ends(X) if ends is None else ends
    size = np.maximum(high, -low)
    size[size == 0] = 1.0
    total = np.zeros(X.shape[1])
    for rows in row_blocks(X):
        share = np.ones(len(X[rows])) if weights is None else weights[rows]
        total += share @ ((X[rows] - centre) / size) ** 2
    return size * np.sqrt(total / (len(X) if weights is None else np.sum(weights)))


def _ends(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return X.min(axis=0), X.max(axis=0)


def _rms(X: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    sizes = _about(X, np.zeros(X.shape[1]), weights)
    return np.where((sizes > 0) & np.isfinite(sizes), sizes, 1.0)
