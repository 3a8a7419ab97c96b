"""The left side of a formula: a column, a function of columns, or `p(y, n)`, y successes of n trials.

`cens(time, status)` is read in the same way: times are the successes, and status, 1 or 0, are the trials.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd
from formulae import model_description
from formulae.terms.call_resolver import LazyCall, LazyOperator
from formulae.terms.variable import Variable

from natvi.formula.columns import TermRecipe, assemble
from natvi.formula.components import Numeric
from natvi.formula.expressions import Expression
from natvi.formula.raw_columns import Array
from natvi.formula.term_recipes import response_values
from natvi.formula.terms import (
    BASES,
    CENSORED,
    PROPORTIONS,
    component_name,
    label,
    needs_column,
    role_of,
    to_expression,
)


@dataclass(frozen=True, eq=False)
class LeftSide:
    """What stands left of `~`.

    Attributes:
        name: As it is shown, such as `"log(y)"` or `"p(y, n)"`.
        component: formulae's component.
        role: `"plain"` for a column as it is, `"numeric"` for what is computed from numbers.
        columns: Columns of the response; for `p(y, n)` those of the successes.
        successes: The first argument of `p(y, n)`, or None.
        trials: The second argument of `p(y, n)`, or None.
    """

    name: str
    component: Any
    role: str
    columns: frozenset[str]
    successes: Expression | None = None
    trials: Expression | None = None

    @property
    def all_columns(self) -> frozenset[str]:
        """Columns of the response and of the trials."""
        return self.columns | (self.trials.columns if self.trials else frozenset())

    def evaluate(self, frame: pd.DataFrame, table: pd.DataFrame) -> tuple[pd.Series, Array | None]:
        """Returns the response, or the successes, of every row, and the trials if there are any.

        Args:
            frame: The rows in use as they are in the data.
            table: The same rows with their columns made numbers and factors.
        """
        if self.successes is None or self.trials is None:
            return response_values(self.component, frame, table), None
        terms = tuple(
            TermRecipe((f"{part} of {self.name}",), (Numeric(expression),))
            for part, expression in (("successes", self.successes), ("trials", self.trials))
        )
        values = assemble(terms, table)
        return pd.Series(values[:, 0], index=frame.index, name=self.name), values[:, 1]


def read_left_side(text: str) -> LeftSide:
    """Reads the text left of `~`; raises if it cannot be a response."""
    try:
        description: Any = model_description(f"{text} ~ 1")
        component = description.response.term.components[0]
    except Exception as error:
        raise ValueError(
            f"cannot use {text!r} as a response. Give one column, a function of it such as log(y), or p(y, n) for y "
            "successes of n trials."
        ) from error
    call = None if isinstance(component, Variable) else component.call
    if getattr(component, "reference", None) is not None:
        raise ValueError(f"not yet supported: the response {text!r}. Give one row per trial, with 0 or 1.")
    if call is not None and call.callee == "cbind":
        raise ValueError(f"{text!r} gives successes and failures. Give successes and trials: {_from_cbind(call)}.")
    if call is not None and call.callee in (*PROPORTIONS, CENSORED):
        return _proportion(component)
    if (call is not None and call.callee in BASES) or role_of(component)[0] not in ("plain", "numeric"):
        raise ValueError(f"{text!r} cannot be a response. Give a column, or a function such as log(y).")
    return LeftSide(component_name(component), component, *role_of(component))


def _proportion(component: Any) -> LeftSide:
    call, name = component.call, component_name(component)
    if len(call.args) != 2 or call.kwargs:
        what = (
            "(time, status) takes two arguments, a waiting time and 1 for an event or 0 for a time that was cut short"
        )
        what = what if call.callee == CENSORED else "(y, n) takes two arguments, successes and trials"
        raise ValueError(f"{call.callee}{what}; got {name!r}.")
    successes, trials = (_arithmetic(arg, name) for arg in call.args)
    return LeftSide(name, component, "numeric", needs_column(successes, call.args[0]), successes, trials)


def _arithmetic(lazy: Any, name: str) -> Expression:
    if _has_call(lazy):
        raise ValueError(
            f"{label(lazy)!r} in {name!r} is not simple enough: successes and trials are columns, numbers and "
            "+ - * / ** of them. Add a column to the data for anything else."
        )
    return to_expression(lazy)


def _has_call(lazy: Any) -> bool:
    # I() and the braces of formulae only group
    grouping = isinstance(lazy, LazyCall) and lazy.callee == "I"
    if isinstance(lazy, LazyCall) and not grouping:
        return True
    return any(_has_call(arg) for arg in getattr(lazy, "args", ()))


def _from_cbind(call: Any) -> str:
    """Returns `cbind(y, failures)` as `p(y, n)`."""
    if len(call.args) != 2:
        return "p(y, n)"
    y, rest = call.args
    if isinstance(rest, LazyOperator) and rest.op.__name__ == "sub" and rest.args[1] == y:
        return f"p({label(y)}, {label(rest.args[0])})"
    return f"p({label(y)}, {label(y)} + {label(rest)})"
