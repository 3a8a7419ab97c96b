"""Columns in standard form: numbers centred before products are formed, each column with a size to scale it by.

The size d of a column, once centred, is its sd, half its range where it has two values, and |x| where it is constant.
Where no constant lies in the span of the columns nothing is centred, and sizes are root mean squares.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from natvi.formula.margins import Margins, Products, centring_map
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
    plain = np.array_equal(K, np.eye(len(K)))
    inside = X if plain else transform(X, K)
    role = INTERCEPT if len(constant) == 1 else CELL  # several columns add up to one as levels of factors only
    roles = tuple(role if at in constant else SLOPE for at in range(X.shape[1]))
    return StandardColumns(None if plain else K, column_sizes(inside, weights), roles, constant)


def column_sizes(columns: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the size of every column: sd, half the range of two values, |x| of one value; 1 for zeros.

    Example:
        >>> column_sizes(np.array([[3.0, 0.0, 1.0], [3.0, 1.0, 2.0], [3.0, 1.0, 3.0]])).round(3).tolist()
        [3.0, 0.5, 0.816]
    """
    sizes = np.empty(columns.shape[1])
    for at in range(columns.shape[1]):
        x = columns[:, at]
        low, high = float(x.min()), float(x.max())
        slack = SAME * (high - low)
        if low == high:
            sizes[at] = abs(low)
        elif np.all((x <= low + slack) | (x >= high - slack)):
            sizes[at] = 0.5 * high - 0.5 * low
        else:
            sizes[at] = spread(x, weights)
    return np.where((sizes > 0) & np.isfinite(sizes), sizes, 1.0)


def spread(x: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the sd of a column, by weight; of numbers of any size."""
    size = float(np.max(np.abs(x))) or 1.0
    x = x / size
    return size * float(np.sqrt(np.average((x - np.average(x, weights=weights)) ** 2, weights=weights)))


def root_mean_square(x: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the root mean square of a column, by weight; of numbers of any size."""
    size = float(np.max(np.abs(x))) or 1.0
    return size * float(np.sqrt(np.average((x / size) ** 2, weights=weights)))


def _rms(X: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    sizes = np.array([root_mean_square(X[:, at], weights) for at in range(X.shape[1])])
    return np.where((sizes > 0) & np.isfinite(sizes), sizes, 1.0)
