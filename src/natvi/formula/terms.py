"""Terms of a formula: expanded by formulae, and checked against the functions that are known."""

import copy
import math
import sys
from collections import Counter
from typing import Any

import formulae.expr as syntax
from formulae import model_description
from formulae.terms.call import Call
from formulae.terms.call_resolver import CallResolver, LazyCall, LazyOperator, LazyValue, LazyVariable
from formulae.terms.terms import Intercept
from formulae.terms.variable import Variable

from natvi.formula.expressions import BINARY, COMPARISONS, FUNCTIONS, UNARY, Expression
from natvi.formula.syntax import is_binary, parse, render, syntax_error, walk

_RANKS = dict.fromkeys(COMPARISONS, 0) | {"add": 1, "sub": 1, "mul": 2, "truediv": 2, "neg": 3, "pos": 3, "pow": 4}
STATEFUL = {"center": "center", "scale": "scale", "standardize": "scale"}
BASES = ("poly", "bs")
_FACTORS = ("C", "T", "S")
_CONTRASTS = ("Treatment", "Sum")
WIDEST_BASIS = 200  # columns of bs() or poly()
PROPORTIONS = ("p", "prop", "proportion")
CENSORED = "cens"
_KNOWN = ", ".join([*FUNCTIONS, "I", *STATEFUL, *BASES, *_FACTORS, "offset"])


def expand_terms(part: str) -> list[Any]:
    """Expands a right-hand side with formulae and checks every component against the known functions."""
    tree = parse(part)
    for node in walk(tree, into_calls=False):
        if is_binary(node, "STAR_STAR") and not isinstance(node.left, syntax.Grouping):
            text = render(node)
            raise ValueError(f"{text!r} means interactions in a formula. For a power write I({text}).")
    calls: dict[str, Any] = {}
    try:
        terms = [copy.copy(term) for term in model_description(render(tree, calls)).common_terms]
        for term in terms:
            if not isinstance(term, Intercept):
                term.components = [_fresh(component, calls) for component in term.components]
    except Exception as error:
        raise syntax_error(part, str(error)) from error
    for term in terms:
        roles = [role_of(component)[0] for component in components_of(term)]
        for component in components_of(term):
            component.name = component_name(component)
        term.name = ":".join(component.name for component in components_of(term)) or term.name
        if "offset" in roles and len(roles) > 1:
            raise ValueError(f"an offset cannot interact with other terms; got {term.name!r}.")
    keys = Counter(frozenset(component.name for component in components_of(term)) for term in terms)
    twice = [" and ".join(sorted(key)) for key, count in keys.items() if count > 1]
    if twice:
        raise ValueError(f"the interaction of {twice[0]} is in {part!r} twice. Keep one.")
    return terms


def _fresh(component: Any, calls: dict[str, Any]) -> Any:
    """Returns a component of its own for a term; shared ones would overwrite each other's coding."""
    if component.name not in calls:
        return Variable(component.name, component.reference)
    return Call(CallResolver(calls[component.name]).resolve())


def components_of(term: Any) -> list[Any]:
    """Returns the components of a term; an intercept has none."""
    return [] if isinstance(term, Intercept) else term.components


def component_name(component: Any) -> str:
    """Returns the name with the parentheses that formulae leaves out, as in I((x + z) * 2)."""
    return component.name if isinstance(component, Variable) else label(component.call)


def label(lazy: Any) -> str:
    """Returns the text of a call or an operation, with the parentheses it needs."""
    if isinstance(lazy, LazyCall):
        options = [f"{name}={label(value)}" for name, value in lazy.kwargs.items()]
        return f"{lazy.callee}({', '.join([*map(label, lazy.args), *options])})"
    if not isinstance(lazy, LazyOperator):
        return str(lazy)
    rank = _RANKS[lazy.op.__name__]
    texts = []
    for position, arg in enumerate(lazy.args):
        inner = _RANKS[arg.op.__name__] if isinstance(arg, LazyOperator) else math.inf
        loose = inner < rank or (inner == rank and (position == 1 or rank == _RANKS["pow"]))
        texts.append(f"({label(arg)})" if loose else label(arg))
    return f" {lazy.symbol} ".join(texts) if len(texts) == 2 else lazy.symbol + texts[0]


def role_of(component: Any) -> tuple[str, frozenset[str]]:
    """Returns how a component uses its columns (`plain`, `numeric`, `factor`, `offset`), and these."""
    if isinstance(component, Variable):
        if not isinstance(component.name, str) or component.reference is not None:
            level = "" if component.reference is None else f"[{component.reference}]"
            raise ValueError(f"{component.name}{level} is neither a column nor a known function of columns.")
        return "plain", frozenset({component.name})
    call, callee = component.call, component.call.callee
    if callee in _FACTORS and call.args and isinstance(call.args[0], LazyVariable):
        for arg in [*call.args[1:], *call.kwargs.values()]:
            _check_contrast(arg)
        return "factor", frozenset({call.args[0].name})
    if callee in BASES and call.args:
        options = [*call.args[1:], *call.kwargs.values()]
        if not all(isinstance(arg, LazyValue) for arg in options):
            raise ValueError(f"the options of {call} must be plain numbers, as in poly(x, 2) or bs(x, df=5).")
        if basis_width(call) > WIDEST_BASIS:
            raise ValueError(
                f"{call} would make more than {WIDEST_BASIS} columns. Take a smaller number, as in bs(x, df=5): a few "
                "columns bend as much as data can tell."
            )
        return "numeric", needs_column(to_expression(call.args[0]), call)
    if callee == "offset":
        return "offset", to_expression(_only_argument(call)).columns
    return "numeric", needs_column(to_expression(call), call)


def basis_width(call: Any) -> float:
    """Returns the largest number among the options of bs() or poly(), a bound on the number of columns."""
    values = [option.value for option in [*call.args[1:], *call.kwargs.values()]]
    return max((value for value in values if type(value) in (int, float)), default=1)


def roles_of(terms: list[Any]) -> dict[str, set[str]]:
    """Returns the names of the columns by the way they are used."""
    roles: dict[str, set[str]] = {}
    for role, columns in (role_of(component) for term in terms for component in components_of(term)):
        roles.setdefault(role, set()).update(columns)
    return roles


def column_names(roles: dict[str, set[str]]) -> set[str]:
    """Returns the names of all columns in use."""
    return set().union(*roles.values())


def _check_contrast(lazy: Any) -> None:
    if isinstance(lazy, LazyCall) and lazy.callee in _CONTRASTS:
        known = all(isinstance(arg, LazyValue) for arg in [*lazy.args, *lazy.kwargs.values()])
    else:
        known = isinstance(lazy, LazyValue) or (isinstance(lazy, LazyVariable) and lazy.name in _CONTRASTS)
    if not known:
        raise ValueError(f"factors are coded by Treatment or Sum, as in C(x, Sum); got {str(lazy)!r}.")


def _only_argument(call: Any) -> Any:
    if len(call.args) != 1 or call.kwargs:
        raise ValueError(f"{call.callee}() takes one argument; got {str(call)!r}.")
    return call.args[0]


def needs_column(expression: Expression, call: Any) -> frozenset[str]:
    """Returns the columns of an expression; raises if there is none."""
    if not expression.columns:
        raise ValueError(f"{str(call)!r} has no column in it. Leave it out, or use offset() for a constant.")
    return expression.columns


def to_expression(lazy: Any) -> Expression:
    """Turns formulae's call tree into an expression, with the state its transforms have learned so far."""
    if isinstance(lazy, LazyVariable):
        return Expression("column", name=lazy.name)
    if isinstance(lazy, LazyValue) and type(lazy.value) in (int, float):
        return Expression("number", values=(_finite(lazy.value, lazy),))
    if isinstance(lazy, LazyOperator) and lazy.op.__name__ in BINARY | UNARY:
        expression = Expression(lazy.op.__name__, tuple(to_expression(arg) for arg in lazy.args))
        if not expression.columns:
            _finite(expression.constant(), lazy)  # formulae would compute with numbers of any length
        return expression
    if not isinstance(lazy, LazyCall):
        hint = " For a level of a factor write C(x), or make a column of it." if isinstance(lazy, LazyValue) else ""
        raise ValueError(
            f"cannot use {str(lazy)!r} in a formula: only + - * / ** and comparisons of columns, numbers and {_KNOWN}."
            f"{hint}"
        )
    name = lazy.callee.removeprefix("np.")
    if name in FUNCTIONS:
        return Expression(name, (to_expression(_only_argument(lazy)),))
    if lazy.callee == "I":
        return to_expression(_only_argument(lazy))
    if lazy.callee in STATEFUL:
        return _stateful(lazy)
    if lazy.callee in (*BASES, *_FACTORS, "offset"):
        raise ValueError(f"{str(lazy)!r} must be a term by itself, with a column as its first argument.")
    if lazy.callee in PROPORTIONS:
        raise ValueError(f"{str(lazy)!r} describes successes and trials. It is the whole left side of '~' or nothing.")
    raise ValueError(
        f"unknown function {lazy.callee!r} in a formula. Known: {_KNOWN}. "
        "For anything else add a column to the data and use its name."
    )


def _finite(value: Any, lazy: Any) -> float:
    """Returns a number as a float; raises if it is too large for one."""
    number = float(value) if abs(value) <= sys.float_info.max else math.inf
    if not math.isfinite(number):
        text = str(lazy)
        raise ValueError(
            f"{text if len(text) < 40 else text[:40] + '...'} in a formula is not a finite number. Numbers go up to "
            "1.8e308: write a smaller one."
        )
    return number


def _stateful(lazy: Any) -> Expression:
    state, op = lazy.stateful_transform, STATEFUL[lazy.callee]
    names = ("mean",) if op == "center" else ("mean", "std")
    values = tuple(float(getattr(state, name)) for name in names) if state else (0.0,) * len(names)
    return Expression(op, (to_expression(_only_argument(lazy)),), values=values)
