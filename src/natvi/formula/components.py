"""Components: the columns of numbers, polynomials, splines and factors, as plain data."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from natvi.formula.expressions import Expression
from natvi.formula.raw_columns import Array, Level, listing, plain_level, read_column
from natvi.formula.recipe_json import (
    get_field,
    get_items,
    get_numbers,
    get_table,
    require_finite,
    require_table,
)

FAR = 0.05  # how far beyond its range a spline may be asked, as a share of it


class Component(ABC):
    """Some columns of a term, computed from raw columns. Subclasses are frozen dataclasses."""

    kind: ClassVar[str]
    __match_args__: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def columns(self) -> frozenset[str]:
        """Names of the raw columns that are read."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of columns that are made."""

    @abstractmethod
    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the columns for the rows of `frame`, shape (rows, width)."""

    @classmethod
    def from_dict(cls, data: Any) -> "Component":
        """Reads what `to_dict` of a recipe wrote; an unknown kind raises."""
        kind = get_field(data, "kind", str)
        if kind not in COMPONENTS:
            raise ValueError(f"unknown component {kind!r} in a column recipe. Known: {', '.join(COMPONENTS)}.")
        found = COMPONENTS[kind]
        names = [name for name in found.__match_args__ if name in data]
        try:
            return found(**{name: _READERS[name](data, name) for name in names})
        except TypeError as error:
            raise ValueError(f"component {kind!r} in a column recipe is incomplete: {error}.") from error


@dataclass(frozen=True)
class Computed(Component):
    """Columns computed from the values of one expression."""

    expression: Expression

    @property
    def columns(self) -> frozenset[str]:
        """Names of the raw columns that are read."""
        return self.expression.columns


@dataclass(frozen=True)
class Numeric(Computed):
    """One column: the expression itself."""

    kind: ClassVar[str] = "numeric"

    @property
    def width(self) -> int:
        """Always 1."""
        return 1

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the values of the expression, shape (rows, 1)."""
        return self.expression.rows(frame)[:, None]


@dataclass(frozen=True)
class Polynomial(Computed):
    """Polynomials p_k = (x - shift_k) p_{k-1} - ratio_k p_{k-2} with p_0 = 1, each divided by its norm."""

    shifts: tuple[float, ...]
    ratios: tuple[float, ...]
    norms: tuple[float, ...]
    kind: ClassVar[str] = "polynomial"

    def __post_init__(self) -> None:
        require_finite(self.shifts + self.ratios + self.norms)
        if not len(self.shifts) == len(self.ratios) == len(self.norms) > 0:
            raise ValueError("a polynomial in a column recipe needs as many shifts as ratios and norms.")

    @property
    def width(self) -> int:
        """The degree."""
        return len(self.norms)

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns p_1 to p_degree, shape (rows, degree)."""
        x = self.expression.rows(frame)
        basis = [np.zeros_like(x), np.ones_like(x)]
        for shift, ratio in zip(self.shifts, self.ratios, strict=True):
            basis.append((x - shift) * basis[-1] - ratio * basis[-2])
        return np.stack(basis[2:], axis=1) / np.asarray(self.norms)


@dataclass(frozen=True)
class Spline(Computed):
    """A B-spline basis times a fixed matrix, which centres or drops columns."""

    knots: tuple[float, ...]
    degree: int
    transform: tuple[tuple[float, ...], ...]
    kind: ClassVar[str] = "spline"

    def __post_init__(self) -> None:
        require_finite(self.knots)
        require_table(self.transform, len(self.knots) - self.degree - 1)
        if self.degree < 0 or list(self.knots) != sorted(self.knots):
            raise ValueError("a spline in a column recipe needs sorted knots and a degree of 0 or more.")

    @property
    def width(self) -> int:
        """Number of columns of the matrix."""
        return len(self.transform[0])

    def out_of_range(self, frame: pd.DataFrame) -> str:
        """Returns a sentence about rows beyond the outermost knots, or an empty text."""
        low, high = self.knots[self.degree], self.knots[-self.degree - 1]
        values = self.expression.rows(frame)
        beyond = np.maximum(low - values, values - high)
        outside = beyond > FAR * (high - low)
        if not outside.any():
            return ""
        name = ", ".join(sorted(self.columns))
        return (
            f"{int(outside.sum()):,} of {len(values):,} rows lie outside the range of {name} that bs() was fitted to, "
            f"{low:.6g} to {high:.6g}, by up to {beyond.max():.3g}. There the spline goes on as a polynomial of degree "
            f"{self.degree}, which says nothing about the data: stay within the range, or fit again with such rows."
        )

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the transformed basis, shape (rows, width)."""
        from scipy.interpolate import BSpline

        basis = BSpline(np.asarray(self.knots), np.eye(len(self.transform)), self.degree)
        return basis(self.expression.rows(frame)) @ np.asarray(self.transform)


@dataclass(frozen=True)
class Factor(Component):
    """Indicator columns of a factor, or its rows of a contrast matrix.

    Attributes:
        column: Name of the raw column.
        levels: Known levels, in coding order.
        reference: Position of the level without a column; None gives every level its column.
        contrast: One row per level where the coding is not by indicators (sum contrasts).
    """

    column: str
    levels: tuple[Level, ...]
    reference: int | None = None
    contrast: tuple[tuple[float, ...], ...] | None = None
    kind: ClassVar[str] = "factor"

    def __post_init__(self) -> None:
        if not self.column or not self.levels or len(set(self.levels)) != len(self.levels):
            raise ValueError(f"factor {self.column!r} in a column recipe needs a column and distinct levels.")
        if self.reference is not None and not 0 <= self.reference < len(self.levels):
            raise ValueError(f"factor {self.column!r} in a column recipe has no level {self.reference}.")
        if self.contrast is not None:
            require_table(self.contrast, len(self.levels))

    @property
    def columns(self) -> frozenset[str]:
        """Name of the raw column."""
        return frozenset({self.column})

    @property
    def width(self) -> int:
        """Number of levels with a column, or of contrasts."""
        return len(self.contrast[0]) if self.contrast else len(self.levels) - (self.reference is not None)

    def codes(self, frame: pd.DataFrame) -> NDArray[np.intp]:
        """Returns the level number of every row; a level not seen in training raises."""
        codes, values = pd.factorize(read_column(frame, self.column))
        known = {level: number for number, level in enumerate(self.levels)}
        numbers = np.array([known.get(plain_level(value), -1) for value in values], dtype=np.intp)
        if (numbers < 0).any():
            unseen = [value for value, number in zip(values, numbers, strict=True) if number < 0]
            raise ValueError(
                f"column {self.column!r} has level(s) that were not in the training data: {listing(unseen)}. "
                f"Known levels: {listing(self.levels)}. Drop these rows or fit again with them."
            )
        return numbers[codes]

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the coded columns, shape (rows, width)."""
        codes = self.codes(frame)
        if self.contrast is not None:
            return np.asarray(self.contrast)[codes]
        matrix = np.zeros((len(codes), self.width))
        rows = np.arange(len(codes))
        if self.reference is not None:
            rows = np.flatnonzero(codes != self.reference)
            codes = codes[rows] - (codes[rows] > self.reference)
        matrix[rows, codes] = 1.0
        return matrix


COMPONENTS: dict[str, type[Component]] = {cls.kind: cls for cls in (Numeric, Polynomial, Spline, Factor)}
_READERS: dict[str, Callable[[Any, str], Any]] = {
    "expression": lambda data, key: Expression.from_dict(data[key]),
    "column": lambda data, key: get_field(data, key, str),
    "levels": lambda data, key: get_items(data, key, Level),
    "reference": lambda data, key: get_field(data, key, int),
    "degree": lambda data, key: get_field(data, key, int),
    "contrast": get_table,
    "transform": get_table,
    **dict.fromkeys(("shifts", "ratios", "norms", "knots"), get_numbers),
}
