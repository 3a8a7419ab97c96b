"""Recipes of terms: formulae codes a sample of the rows, and what it decided is written down."""

import contextlib
import io
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import formulae
import numpy as np
import pandas as pd
from formulae.environment import Environment
from formulae.matrices import DesignMatrices
from formulae.terms.call_resolver import LazyCall
from formulae.terms.terms import Intercept, Model
from formulae.terms.variable import Variable
from formulae.transforms import TRANSFORMS
from numpy.typing import NDArray

from natvi.formula.columns import ColumnRecipe, TermRecipe, assemble
from natvi.formula.components import Component, Factor, Numeric, Polynomial, Spline
from natvi.formula.expressions import FUNCTIONS, Expression
from natvi.formula.raw_columns import Array, listing, plain_level, read_column
from natvi.formula.terms import BASES, STATEFUL, component_name, components_of, roles_of, to_expression

_NAMESPACE = {"np": SimpleNamespace(**FUNCTIONS), **FUNCTIONS}
_TOLERANCE = 1e-12


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps formulae from printing and turns its failures into one kind of error."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise ValueError(f"the terms cannot be built from this data: {error}") from error


def _learn(call: Any, table: pd.DataFrame) -> None:
    """Lets the stateful transforms of a call learn their parameters from all rows."""
    if _has_state(call):
        with _quiet():
            call.eval(table, Environment([TRANSFORMS, _NAMESPACE]))


def _has_state(lazy: Any) -> bool:
    if isinstance(lazy, LazyCall) and lazy.callee in (*STATEFUL, *BASES):
        return True
    return any(_has_state(arg) for arg in getattr(lazy, "args", ()))


def build_part(terms: list[Any], table: pd.DataFrame, sample: NDArray[np.intp]) -> tuple[tuple[TermRecipe, ...], Array]:
    """Returns the recipe of a part and what formulae makes of the sample rows."""
    terms = [term for term in terms if "offset" not in roles_of([term])]
    if all(isinstance(term, Intercept) for term in terms):
        return tuple(TermRecipe(("Intercept",)) for _ in terms), np.ones((len(sample), len(terms)))
    for component in (component for term in terms for component in components_of(term)):
        if not isinstance(component, Variable):
            _learn(component.call, table)
    model = Model(*terms)
    with _quiet():
        common: Any = DesignMatrices(model, table.iloc[sample], Environment([_NAMESPACE])).common
    recipes = tuple(
        TermRecipe(tuple(term.labels), tuple(_recipe(component) for component in components_of(term)))
        for term in model.common_terms
    )
    return recipes, np.asarray(common.design_matrix, dtype=np.float64)


def _recipe(component: Any) -> Component:
    if component.kind == "categoric":
        plain = isinstance(component, Variable)
        return _factor(component.name if plain else component.call.args[0].name, component)
    if isinstance(component, Variable):
        return Numeric(Expression("column", name=component.name))
    call = component.call
    if call.callee == "poly":
        return _polynomial(to_expression(call.args[0]), call.stateful_transform)
    if call.callee == "bs":
        return _spline(to_expression(call.args[0]), call.stateful_transform)
    return Numeric(to_expression(call))


def _factor(column: str, component: Any) -> Factor:
    levels = tuple(plain_level(level) for level in component.levels)
    matrix = np.asarray(component.contrast_matrix.matrix, dtype=np.float64)
    if matrix.shape[1] == 0:
        raise ValueError(
            f"column {column!r} has one level only ({listing(levels)}), so it has no effect. Leave it out."
        )
    reference = int(np.argmin(np.abs(matrix).sum(axis=1))) if matrix.shape[1] < len(levels) else None
    indicators = np.eye(len(levels))
    indicators = indicators if reference is None else np.delete(indicators, reference, axis=1)
    if np.array_equal(matrix, indicators):
        return Factor(column, levels, reference)
    return Factor(column, levels, contrast=tuple(tuple(row) for row in matrix.tolist()))


def _polynomial(expression: Expression, state: Any) -> Polynomial:
    degree = state.degree
    if degree < 1:
        raise ValueError(f"poly() needs a degree of 1 or more, not {degree}.")
    if state.raw:
        return Polynomial(expression, (0.0,) * degree, (0.0,) * degree, (1.0,) * degree)
    squares = [float(state.norms2[k]) for k in range(degree + 1)]
    if not all(square > 0.0 for square in squares):
        raise ValueError(
            f"poly() of degree {degree} needs more than {degree} different values, and the column has fewer. Take a "
            "lower degree, or leave the column out."
        )
    shifts = tuple(float(state.alpha[k]) for k in range(degree))
    ratios = (0.0, *(squares[k] / squares[k - 1] for k in range(1, degree)))
    return Polynomial(expression, shifts, ratios, tuple(math.sqrt(square) for square in squares[1:]))


def _spline(expression: Expression, state: Any) -> Spline:
    knots, degree = state._knots, state._degree
    transform = np.eye(len(knots) - degree - 1)
    if getattr(state, "_centering_matrix", None) is not None:
        transform = state._centering_matrix
    elif not getattr(state, "_intercept", True):  # formulae before 0.9 drops the first column
        transform = transform[:, 1:]
    return Spline(expression, tuple(knots.tolist()), int(degree), tuple(tuple(row) for row in transform.tolist()))


def offset_expressions(terms: list[Any], table: pd.DataFrame) -> tuple[Expression, ...]:
    """Returns the arguments of all offsets, with what they learned from the table."""
    calls = [term.components[0].call for term in terms if "offset" in roles_of([term])]
    for call in calls:
        _learn(call.args[0], table)
    return tuple(to_expression(call.args[0]) for call in calls)


def response_values(component: Any, frame: pd.DataFrame, table: pd.DataFrame) -> pd.Series:
    """Returns the raw response column, or the values of the response expression."""
    if isinstance(component, Variable):
        return read_column(frame, component.name)
    _learn(component.call, table)
    term = TermRecipe((component_name(component),), (Numeric(to_expression(component.call)),))
    return pd.Series(assemble((term,), table)[:, 0], index=frame.index, name=component_name(component))


def check_recipe(
    recipe: ColumnRecipe, sample: pd.DataFrame, built: tuple[Array, Array], expected: tuple[Array, Array]
) -> None:
    """Compares the sample rows, as built and from raw data, with formulae's."""
    for theirs, *ours in zip(expected, built, recipe.apply(sample)[:2], strict=True):
        for matrix in ours:
            if matrix.shape != theirs.shape or not np.allclose(matrix, theirs, _TOLERANCE, _TOLERANCE):
                raise ValueError(
                    f"the recipe of the columns {listing(recipe.fixed_names + recipe.random_names)} does not "
                    f"reproduce what formulae {formulae.__version__} builds. Compute transformed columns in "
                    "the data frame first, and please report this formula."
                )


# --- further formulas, such as `zero="~ x"`: names begin with that of the number they are for -------------------


def part_name(part: str, name: str) -> str:
    """Return the name of a column of a further formula.

    Example:
        >>> part_name("zero", "x")
        'zero:x'
    """
    return f"{part}:{name}"


def renamed(terms: tuple[TermRecipe, ...], part: str) -> tuple[TermRecipe, ...]:
    """Return terms whose columns have the names of a part."""
    return tuple(replace(term, names=tuple(part_name(part, name) for name in term.names)) for term in terms)


def check_part(part: str, terms: list[Any], has_offset: bool) -> None:
    """Refuse a further formula without columns, or with an offset."""
    if has_offset:
        raise ValueError(f"the formula of {part!r} has an offset(), which is for that of the mean. Leave it out.")
    if not terms:
        raise ValueError(f"the formula of {part!r} has no columns. Write '~ 1' for an intercept alone.")
