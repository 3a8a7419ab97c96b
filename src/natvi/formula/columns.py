"""Column recipes: how the design columns of a model are rebuilt from raw data.

A recipe is what is left of a formula once it has met its training data: for every term the columns it
reads, the functions it applies, the numbers it learned (means, knots) and the levels of its factors.
It is plain data. It goes through JSON, and applying it runs only the functions that `expressions` and
`components` list.
"""

import math
import warnings
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from natvi.formula.components import Component, Factor, Numeric, Polynomial, Spline
from natvi.formula.expressions import FUNCTIONS, Expression
from natvi.formula.frames import as_frame
from natvi.formula.raw_columns import Array, check_complete, check_finite, listing, read_column
from natvi.formula.recipe_json import get_field, get_items, to_plain

__all__ = [
    "FUNCTIONS",
    "ColumnRecipe",
    "Component",
    "Expression",
    "Factor",
    "Numeric",
    "Polynomial",
    "Spline",
    "TermRecipe",
    "as_frame",
    "assemble",
    "read_column",
]
_BLOCK = 2**18
_VERSION = 1


@dataclass(frozen=True)
class TermRecipe:
    """One term of a model: the products of its components' columns; without components, the intercept.

    Attributes:
        names: Names of the columns, the last component's running fastest.
        components: The factors of the product.
    """

    names: tuple[str, ...]
    components: tuple[Component, ...] = ()

    def __post_init__(self) -> None:
        if len(self.names) != math.prod(component.width for component in self.components):
            raise ValueError(f"term {listing(self.names)} in a column recipe has the wrong number of names.")

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the columns of the term for the rows of `frame`, shape (rows, len(names))."""
        if not self.components:
            return np.ones((len(frame), 1))
        with np.errstate(all="ignore"):
            return reduce(_products, (component.evaluate(frame) for component in self.components))

    @classmethod
    def from_dict(cls, data: Any) -> "TermRecipe":
        """Reads what `to_dict` of a recipe wrote."""
        components = get_field(data, "components", list, [])
        return cls(get_items(data, "names", str), tuple(map(Component.from_dict, components)))


@dataclass(frozen=True)
class ColumnRecipe:
    """Rebuilds X, Z and the offset of a model for new data.

    Attributes:
        fixed: Terms of the fixed part, in the order of the columns of X.
        random: Terms left of `|`, in the order of the columns of Z.
        offset: Expressions whose sum is the offset.
        trials: Number of trials of every row, for a response `p(y, n)`; None for any other.
        weights: The column of weights, or None; weights that came as an array have no column.

    Example:
        >>> slope = TermRecipe(("x",), (Numeric(Expression("column", name="x")),))
        >>> recipe = ColumnRecipe(fixed=(TermRecipe(("Intercept",)), slope))
        >>> X, Z, offset = ColumnRecipe.from_dict(recipe.to_dict()).apply({"x": [2.0, 3.0]})
        >>> X.tolist()
        [[1.0, 2.0], [1.0, 3.0]]
    """

    fixed: tuple[TermRecipe, ...] = ()
    random: tuple[TermRecipe, ...] = ()
    offset: tuple[Expression, ...] = ()
    trials: Expression | None = None
    weights: Expression | None = None

    @property
    def fixed_names(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return tuple(name for term in self.fixed for name in term.names)

    @property
    def random_names(self) -> tuple[str, ...]:
        """Names of the columns of Z."""
        return tuple(name for term in self.random for name in term.names)

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Names of the raw columns that `apply` reads, sorted; trials and weights are not among them."""
        parts = [component for term in self.fixed + self.random for component in term.components]
        return tuple(sorted(frozenset().union(*(part.columns for part in [*parts, *self.offset]))))

    @property
    def factors(self) -> frozenset[str]:
        """Names of the columns that are read as factors, numbers in `C(x)` among them."""
        parts = [component for term in self.fixed + self.random for component in term.components]
        return frozenset(part.column for part in parts if isinstance(part, Factor))

    def apply(self, new_data: Any) -> tuple[Array, Array, Array]:
        """Builds the design for new data.

        Args:
            new_data: A DataFrame, or what can be made one, with the columns `used_columns`.

        Returns:
            X (rows, len(fixed_names)), Z (rows, len(random_names)) and the offset (rows,), in float64.

        Raises:
            ValueError: For an absent column, a missing or infinite value, or an unseen factor level.
        """
        frame = as_frame(new_data)
        check_complete(frame, self.used_columns)
        check_finite(frame, self.used_columns)
        found = self.evaluate(frame)
        self._warn_about_splines(frame)
        return found

    def _warn_about_splines(self, frame: pd.DataFrame) -> None:
        """Says where a spline is asked for values outside the range it was fitted to."""
        for component in (component for term in self.fixed + self.random for component in term.components):
            if isinstance(component, Spline) and (words := component.out_of_range(frame)):
                warnings.warn(words, stacklevel=3)

    def evaluate(self, frame: pd.DataFrame) -> tuple[Array, Array, Array]:
        """Does the work of `apply` for a frame whose columns are known to have no gaps."""
        offset = np.zeros(len(frame))
        for expression in self.offset:
            offset += assemble((TermRecipe(("offset",), (Numeric(expression),)),), frame)[:, 0]
        return assemble(self.fixed, frame), assemble(self.random, frame), offset

    def apply_trials(self, new_data: Any) -> Array | None:
        """Returns the number of trials of new rows, or None for a response without trials."""
        return self._numbers("trials", self.trials, new_data)

    def apply_weights(self, new_data: Any) -> Array | None:
        """Returns the weights of new rows, or None for a model whose weights are not a column."""
        return self._numbers("weights", self.weights, new_data)

    def _numbers(self, name: str, expression: Expression | None, new_data: Any) -> Array | None:
        if expression is None:
            return None
        frame = as_frame(new_data)
        check_complete(frame, sorted(expression.columns))
        check_finite(frame, sorted(expression.columns))
        return assemble((TermRecipe((name,), (Numeric(expression),)),), frame)[:, 0]

    def to_dict(self) -> dict[str, Any]:
        """Returns the recipe as JSON values."""
        return {"version": _VERSION, **to_plain(self)}

    @classmethod
    def from_dict(cls, data: Any) -> "ColumnRecipe":
        """Reads what `to_dict` wrote, from any source: all is checked, nothing is executed.

        Raises:
            ValueError: For anything that is not a well-formed recipe of known operations.
        """
        if get_field(data, "version", int) != _VERSION:
            raise ValueError(f"column recipe of version {data['version']}; this natvi reads version {_VERSION}.")
        fixed, random = (
            tuple(TermRecipe.from_dict(term) for term in get_field(data, key, list, [])) for key in ("fixed", "random")
        )
        offset = tuple(Expression.from_dict(item) for item in get_field(data, "offset", list, []))
        trials, weights = (Expression.from_dict(data[key]) if key in data else None for key in ("trials", "weights"))
        return cls(fixed, random, offset, trials, weights)


def _products(left: Array, right: Array) -> Array:
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def assemble(terms: tuple[TermRecipe, ...], frame: pd.DataFrame) -> Array:
    """Returns the columns of all terms side by side, shape (rows, columns); raises if one is not finite.

    Rows are filled in blocks, so that factors and products need no second array of full size.
    """
    widths = [len(term.names) for term in terms]
    matrix = np.empty((len(frame), sum(widths)))
    stops = np.cumsum(widths, dtype=int)
    step = max(256, _BLOCK // max(1, matrix.shape[1]))
    for start in range(0, len(frame), step):
        rows = frame.iloc[start : start + step]
        for term, width, stop in zip(terms, widths, stops, strict=True):
            matrix[start : start + step, stop - width : stop] = term.evaluate(rows)
    _check_result(matrix, [name for term in terms for name in term.names])
    return matrix


def _check_result(matrix: Array, names: list[str]) -> None:
    with np.errstate(all="ignore"):
        total = matrix.sum()
    if np.isfinite(total) or (finite := np.isfinite(matrix)).all():
        return
    column = int(np.argmin(finite.all(axis=0)))
    count = int((~finite[:, column]).sum())
    raise ValueError(
        f"{names[column]!r} is not a finite number in {count} of {len(matrix)} rows. Look for logarithms or "
        "roots of zero or negative numbers, division by zero, and scale() of a constant column."
    )
