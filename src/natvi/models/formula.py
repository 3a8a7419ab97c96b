"""Formulas: from `"y ~ 1 + x*trt + (1 + x | group)"` and a data frame to arrays.

formulae reads the syntax, expands the terms and chooses the coding of the factors. It is shown only a few
hundred rows, enough to see every level, and never the grouping column, for which it would build dense
arrays as wide as the number of groups. All other work is done by the column recipe, so that training data
and new data go through the same code.

Booleans are numbers (0 and 1); `C(flag)` makes a factor of them. Text and categories are factors; a
categorical column keeps its order of categories, so that the first one in use is the reference level.
"""

import contextlib
import copy
import io
import math
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import formulae
import formulae.expr as syntax
import numpy as np
import pandas as pd
from formulae import model_description
from formulae.environment import Environment
from formulae.matrices import DesignMatrices
from formulae.parser import Parser
from formulae.scanner import Scanner
from formulae.terms.call import Call
from formulae.terms.call_resolver import CallResolver, LazyCall, LazyOperator, LazyValue, LazyVariable
from formulae.terms.terms import Intercept, Model
from formulae.terms.variable import Variable
from formulae.transforms import TRANSFORMS
from numpy.typing import NDArray

from natvi.models.columns import (
    BINARY,
    FUNCTIONS,
    UNARY,
    Array,
    ColumnRecipe,
    Component,
    Expression,
    Factor,
    Numeric,
    Polynomial,
    Spline,
    TermRecipe,
    as_frame,
    assemble,
    check_finite,
    column_kind,
    listing,
    missing_counts,
    plain_level,
    read_column,
    read_numeric,
)

_RANKS = {"add": 1, "sub": 1, "mul": 2, "truediv": 2, "neg": 3, "pos": 3, "pow": 4}
_STATEFUL = {"center": "center", "scale": "scale", "standardize": "scale"}
_BASES = ("poly", "bs")
_FACTORS = ("C", "T", "S")
_CONTRASTS = ("Treatment", "Sum")
_PROPORTIONS = ("p", "prop", "proportion")
_KNOWN = ", ".join([*FUNCTIONS, "I", *_STATEFUL, *_BASES, *_FACTORS, "offset"])
_NAMESPACE = {"np": SimpleNamespace(**FUNCTIONS), **FUNCTIONS}
_LONG = 200
_CHECK_ROWS = 200
_TOLERANCE = 1e-12
_MAX_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Formula:
    """A formula, taken apart.

    Attributes:
        text: The formula as it was given.
        response: Left of `~`: a column or an expression such as `log(y)`.
        fixed: Fixed part with its intercept spelled out, such as `"1 + base*trt"`.
        random: Left of `|`, such as `"1 + Days"`; `"0"` without a grouping factor.
        group: Name of the grouping column, or None.
    """

    text: str
    response: str
    fixed: str
    random: str
    group: str | None


@dataclass(frozen=True, eq=False)
class Design:
    """Arrays of a model, for the N rows in use.

    Attributes:
        X: Fixed-effects columns, shape (N, p).
        fixed_names: Their p names.
        Z: Random-effects columns, shape (N, r); r = 0 without a grouping factor.
        random_names: Their r names.
        offset: Sum of the offsets, shape (N,).
        response: The response column as it is in the data, or the values of the response expression.
        response_name: Its name.
        group_codes: Group number of every row, shape (N,), or None.
        group_labels: Label of every group in sorted order, or None.
        rows: Positions of the rows in use in the original data, shape (N,).
        num_missing: Number of rows dropped for missing values.
        columns: Recipe that rebuilds X, Z and the offset for new data.
    """

    X: Array
    fixed_names: tuple[str, ...]
    Z: Array
    random_names: tuple[str, ...]
    offset: Array
    response: pd.Series
    response_name: str
    group_codes: NDArray[np.int64] | None
    group_labels: NDArray[Any] | None
    rows: NDArray[np.int64]
    num_missing: int
    columns: ColumnRecipe

    @property
    def group_sizes(self) -> NDArray[np.int64] | None:
        """Number of rows of every group, or None without a grouping factor."""
        if self.group_codes is None or self.group_labels is None:
            return None
        return np.bincount(self.group_codes, minlength=len(self.group_labels)).astype(np.int64)


# --- parsing ---------------------------------------------------------------------------------------


def parse_formula(formula: str) -> Formula:
    """Takes a formula apart and checks that all of it is understood.

    Args:
        formula: Such as `"y ~ base*trt + log(age) + (1 + visit | subject)"`. At most one grouping factor.
            Only known functions may be called; nothing else is ever executed.

    Returns:
        The parts, with intercepts spelled out.

    Raises:
        ValueError: For a formula that cannot be read or is not supported, with the cure.

    Example:
        >>> parse_formula("y ~ base*trt + (Days | Subject)").fixed
        '1 + base*trt'
    """
    left, right = _sides(formula)
    plain: list[str] = []
    bars: list[Any] = []
    for sign, item in _summands(right):
        inner = _ungroup(item)
        num_bars = sum(_is_binary(node, "PIPE") for node in _walk(inner))
        if num_bars == 1 and _is_binary(inner, "PIPE") and sign == "+":
            bars.append(inner)
        elif num_bars:
            raise ValueError(
                f"random effects are added one by one, as in 'y ~ x + (1 | g)'; got {sign} {_render(item)}."
            )
        else:
            plain.append(f"{sign} {_render(item)}")
    random, group = _random_part(bars)
    parsed = Formula(formula, _render(left), _right_hand_side(plain), random, group)
    _check_formula(parsed)
    return parsed


def _sides(formula: str) -> tuple[Any, Any]:
    if not isinstance(formula, str) or not formula.strip():
        raise ValueError(f"a formula is a text such as 'y ~ x + (1 | group)', not {formula!r}.")
    text = formula.strip()
    if "~" not in text:
        raise ValueError(f"the formula {text!r} has no '~'. Write the response first: 'y ~ {text}'.")
    if text.startswith("~"):
        raise ValueError(f"the formula {text!r} has no response. Write it left of '~': 'y {text}'.")
    if text.endswith("~"):
        raise ValueError(f"the formula {text!r} has no predictors. For an intercept alone write '{text} 1'.")
    tree = _parse(text)
    if not _is_binary(tree, "TILDE"):
        raise _syntax_error(text, "'~' must separate the response from the predictors")
    return tree.left, tree.right


def _parse(text: str) -> Any:
    """Parses with formulae's parser, which by itself ignores what it cannot read at the end."""
    try:
        tokens = Scanner(text).scan(add_intercept=False)
    except IndexError as error:
        raise _syntax_error(text, "a backquote is not closed") from error
    except Exception as error:
        raise _syntax_error(text, str(error)) from error
    if any(first.kind == second.kind == "PIPE" for first, second in pairwise(tokens)):
        raise ValueError("'||' (uncorrelated random effects) is not yet supported. Use '|': (1 + x | g).")
    parser = Parser(tokens)
    try:
        tree = parser.parse()
    except Exception as error:
        reason = "it ends too early" if parser.at_end() else str(error)
        raise _syntax_error(text, reason) from error
    if not parser.at_end():
        raise _syntax_error(text, f"cannot read it from {parser.peek().lexeme!r} on")
    for node in _walk(tree):
        _check_power(node)
    return tree


def _syntax_error(text: str, reason: str) -> ValueError:
    return ValueError(
        f"cannot read the formula {text!r}: {reason.rstrip('.')}. A formula looks like "
        "'y ~ x*z + log(w) + (1 | g)'. Put random effects in parentheses and column names with unusual "
        "characters in backquotes."
    )


def _check_power(node: Any) -> None:
    # formulae reads -x**2 as (-x)**2 and a**b**c as (a**b)**c; Python reads both the other way.
    if _is_binary(node, "STAR_STAR"):
        if isinstance(node.left, syntax.Unary) or _is_binary(node.left, "STAR_STAR"):
            raise ValueError(f"{_render(node)!r} is ambiguous. Use parentheses: -(x**2), (a**b)**c.")


def _walk(tree: Any, into_calls: bool = True) -> Iterator[Any]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        children = [getattr(node, name, None) for name in ("left", "right", "expression", "value")]
        children += getattr(node, "args", []) if into_calls else []
        waiting += [child for child in children if type(child).__module__ == syntax.__name__]


def _is_binary(node: Any, kind: str) -> bool:
    return isinstance(node, syntax.Binary) and node.operator.kind == kind


def _ungroup(node: Any) -> Any:
    return _ungroup(node.expression) if isinstance(node, syntax.Grouping) else node


def _summands(node: Any) -> list[tuple[str, Any]]:
    """Returns the signed summands of a sum."""
    found = []
    while _is_binary(node, "PLUS") or _is_binary(node, "MINUS"):
        found.append((node.operator.lexeme, node.right))
        node = node.left
    unary = isinstance(node, syntax.Unary)
    found.append((node.operator.lexeme, node.right) if unary else ("+", node))
    return found[::-1]


def _right_hand_side(items: list[str]) -> str:
    """Joins signed summands; the intercept that formulae would add is written out."""
    intercepts = [item for item in items if item in ("+ 0", "+ 1", "- 0", "- 1")]
    items = items if intercepts else ["+ 1", *items]
    if len(items) > _LONG and all(item.startswith("+") for item in items):
        # formulae descends one level per summand; sums of sums keep it within Python's limit.
        rest = [item[2:] for item in items if item not in ("+ 0", "+ 1")]
        sums = [" + ".join(rest[start : start + _LONG]) for start in range(0, len(rest), _LONG)]
        items = (intercepts or ["+ 1"]) + [f"+ ({text})" for text in sums]
    return " ".join(items).removeprefix("+ ")


def _random_part(bars: list[Any]) -> tuple[str, str | None]:
    if not bars:
        return "0", None
    groups = [_group_name(bar) for bar in bars]
    if len(set(groups)) > 1:
        raise ValueError(
            f"not yet supported: more than one grouping factor ({listing(dict.fromkeys(groups))}). "
            "Keep the one with the most groups as (1 | g) and enter the others as fixed effects."
        )
    if len(bars) > 1:
        inside = " + ".join(_render(bar.left) for bar in bars)
        raise ValueError(
            f"not yet supported: several terms for the same group, ({') + ('.join(map(_render, bars))}), "
            f"which mean uncorrelated effects. Write one term: ({inside} | {groups[0]})."
        )
    items = [f"{sign} {_render(item)}" for sign, item in _summands(_ungroup(bars[0].left))]
    return _right_hand_side(items), groups[0]


def _group_name(bar: Any) -> str:
    group = _ungroup(bar.right)
    if isinstance(group, syntax.QuotedName):
        return group.expression.lexeme[1:-1]
    if isinstance(group, syntax.Variable) and group.level is None:
        return group.name.lexeme
    raise ValueError(
        f"not yet supported: the grouping {_render(group)!r}. One grouping factor is possible, and it must "
        "be a column. Make one, e.g. df['a_b'] = df['a'].astype(str) + ':' + df['b'].astype(str): (1 | a_b)."
    )


def _render(node: Any, calls: dict[str, Any] | None = None) -> str:
    """Returns the text of a syntax tree, parentheses kept.

    With `calls`, function calls are stored there and stand in the text as names: formulae cannot compare
    all calls with each other, as it must to expand terms.
    """
    match node:
        case syntax.Grouping():
            return f"({_render(node.expression, calls)})"
        case syntax.Binary():
            space = " " if node.operator.kind in ("PLUS", "MINUS", "PIPE", "TILDE") else ""
            operator = f"{space}{node.operator.lexeme}{space}"
            return _render(node.left, calls) + operator + _render(node.right, calls)
        case syntax.Unary():
            return f"{node.operator.lexeme}{_render(node.right, calls)}"
        case syntax.Call():
            text = f"{_render(node.callee)}({', '.join(_render(arg) for arg in node.args)})"
            if calls is None:
                return text
            name = "call " + text.replace("`", "'")
            calls[name] = node
            return f"`{name}`"
        case syntax.Assign():
            return f"{_render(node.name)}={_render(node.value)}"
        case syntax.QuotedName():
            return node.expression.lexeme
        case syntax.Variable():
            return node.name.lexeme + (f"[{_render(node.level)}]" if node.level is not None else "")
    if isinstance(node.value, float):
        return np.format_float_positional(node.value, trim="-")
    return node.lexeme or str(node.value)


# --- what a formula may contain --------------------------------------------------------------------


def _terms(part: str) -> list[Any]:
    """Expands a right-hand side with formulae and checks every component against the known functions."""
    tree = _parse(part)
    for node in _walk(tree, into_calls=False):
        if _is_binary(node, "STAR_STAR") and not isinstance(node.left, syntax.Grouping):
            text = _render(node)
            raise ValueError(f"{text!r} means interactions in a formula. For a power write I({text}).")
    calls: dict[str, Any] = {}
    try:
        terms = [copy.copy(term) for term in model_description(_render(tree, calls)).common_terms]
        for term in terms:
            if not isinstance(term, Intercept):
                term.components = [_fresh(component, calls) for component in term.components]
    except Exception as error:
        raise _syntax_error(part, str(error)) from error
    for term in terms:
        roles = [_role(component)[0] for component in _components(term)]
        for component in _components(term):
            component.name = _name(component)
        term.name = ":".join(component.name for component in _components(term)) or term.name
        if "offset" in roles and len(roles) > 1:
            raise ValueError(f"an offset cannot interact with other terms; got {term.name!r}.")
    keys = Counter(frozenset(component.name for component in _components(term)) for term in terms)
    twice = [" and ".join(sorted(key)) for key, count in keys.items() if count > 1]
    if twice:
        raise ValueError(f"the interaction of {twice[0]} is in {part!r} twice. Keep one.")
    return terms


def _fresh(component: Any, calls: dict[str, Any]) -> Any:
    """Returns a component of its own for a term; shared ones would overwrite each other's coding."""
    if component.name not in calls:
        return Variable(component.name, component.reference)
    return Call(CallResolver(calls[component.name]).resolve())


def _components(term: Any) -> list[Any]:
    return [] if isinstance(term, Intercept) else term.components


def _callee(component: Any) -> str:
    return "" if isinstance(component, Variable) else component.call.callee


def _name(component: Any) -> str:
    """Returns the name with the parentheses that formulae leaves out, as in I((x + z) * 2)."""
    return component.name if isinstance(component, Variable) else _label(component.call)


def _label(lazy: Any) -> str:
    if isinstance(lazy, LazyCall):
        options = [f"{name}={_label(value)}" for name, value in lazy.kwargs.items()]
        return f"{lazy.callee}({', '.join([*map(_label, lazy.args), *options])})"
    if not isinstance(lazy, LazyOperator):
        return str(lazy)
    rank = _RANKS[lazy.op.__name__]
    texts = []
    for position, arg in enumerate(lazy.args):
        inner = _RANKS[arg.op.__name__] if isinstance(arg, LazyOperator) else math.inf
        loose = inner < rank or (inner == rank and (position == 1 or rank == _RANKS["pow"]))
        texts.append(f"({_label(arg)})" if loose else _label(arg))
    return f" {lazy.symbol} ".join(texts) if len(texts) == 2 else lazy.symbol + texts[0]


def _role(component: Any) -> tuple[str, frozenset[str]]:
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
    if callee in _BASES and call.args:
        if not all(isinstance(arg, LazyValue) for arg in [*call.args[1:], *call.kwargs.values()]):
            raise ValueError(f"the options of {call} must be plain numbers, as in poly(x, 2) or bs(x, df=5).")
        return "numeric", _needs_column(_expression(call.args[0]), call)
    if callee == "offset":
        return "offset", _expression(_only_argument(call)).columns
    return "numeric", _needs_column(_expression(call), call)


def _roles(terms: list[Any]) -> dict[str, set[str]]:
    """Returns the names of the columns by the way they are used."""
    roles: dict[str, set[str]] = {}
    for role, columns in (_role(component) for term in terms for component in _components(term)):
        roles.setdefault(role, set()).update(columns)
    return roles


def _names(roles: dict[str, set[str]]) -> set[str]:
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


def _needs_column(expression: Expression, call: Any) -> frozenset[str]:
    if not expression.columns:
        raise ValueError(f"{str(call)!r} has no column in it. Leave it out, or use offset() for a constant.")
    return expression.columns


def _expression(lazy: Any) -> Expression:
    """Turns formulae's call tree into an expression, with the state its transforms have learned so far."""
    if isinstance(lazy, LazyVariable):
        return Expression("column", name=lazy.name)
    if isinstance(lazy, LazyValue) and type(lazy.value) in (int, float):
        return Expression("number", values=(float(lazy.value),))
    if isinstance(lazy, LazyOperator) and lazy.op.__name__ in BINARY | UNARY:
        return Expression(lazy.op.__name__, tuple(_expression(arg) for arg in lazy.args))
    if not isinstance(lazy, LazyCall):
        raise ValueError(
            f"cannot use {str(lazy)!r} in a formula: only + - * / ** of columns, numbers and {_KNOWN}."
        )
    name = lazy.callee.removeprefix("np.")
    if name in FUNCTIONS:
        return Expression(name, (_expression(_only_argument(lazy)),))
    if lazy.callee == "I":
        return _expression(_only_argument(lazy))
    if lazy.callee in _STATEFUL:
        return _stateful(lazy)
    if lazy.callee in (*_BASES, *_FACTORS, "offset"):
        raise ValueError(f"{str(lazy)!r} must be a term by itself, with a column as its first argument.")
    raise ValueError(
        f"unknown function {lazy.callee!r} in a formula. Known: {_KNOWN}. "
        "For anything else add a column to the data and use its name."
    )


def _stateful(lazy: Any) -> Expression:
    state, op = lazy.stateful_transform, _STATEFUL[lazy.callee]
    names = ("mean",) if op == "center" else ("mean", "std")
    values = tuple(float(getattr(state, name)) for name in names) if state else (0.0,) * len(names)
    return Expression(op, (_expression(_only_argument(lazy)),), values=values)


def _response_component(text: str) -> Any:
    try:
        description: Any = model_description(f"{text} ~ 1")
        component = description.response.term.components[0]
    except Exception as error:
        raise ValueError(
            f"cannot use {text!r} as a response. Give one column, or a function of it such as log(y)."
        ) from error
    if _callee(component) in _PROPORTIONS or getattr(component, "reference", None) is not None:
        raise ValueError(f"not yet supported: the response {text!r}. Give one row per trial, with 0 or 1.")
    if _role(component)[0] not in ("plain", "numeric") or _callee(component) in _BASES:
        raise ValueError(f"{text!r} cannot be a response. Give a column, or a function such as log(y).")
    return component


def _check_formula(formula: Formula) -> tuple[Any, list[Any], list[Any]]:
    """Returns formulae's response component, fixed terms and random terms; raises if not supported."""
    response, fixed, random = (
        _response_component(formula.response),
        _terms(formula.fixed),
        _terms(formula.random),
    )
    if formula.group is not None and not random:
        raise ValueError(f"({formula.random} | {formula.group}) is empty. Write (1 | {formula.group}).")
    if "offset" in _roles(random):
        raise ValueError("offset() cannot stand left of '|'. Write it among the fixed effects.")
    both = _role(response)[1] & (_names(_roles(fixed + random)) | {formula.group})
    if both:
        raise ValueError(f"{min(both)!r} stands on both sides of '~'. Remove it from the right.")
    return response, fixed, random


# --- building --------------------------------------------------------------------------------------


def build_design(formula: Formula, data: Any, missing: str = "drop", *, max_columns: int = 5000) -> Design:
    """Builds the arrays of a model from training data.

    Args:
        formula: From `parse_formula`.
        data: A DataFrame, or what can be made one.
        missing: `"drop"` leaves out rows with a missing value in a column of the formula and counts them;
            `"error"` raises.
        max_columns: Largest number of columns that factors may lead to.

    Returns:
        The arrays, and the recipe that rebuilds them for new data.

    Raises:
        ValueError: For data that does not suit the formula, with the cure.
    """
    response, fixed_terms, random_terms = _check_formula(formula)
    role, response_columns = _role(response)
    roles = _roles(fixed_terms + random_terms)
    if role == "numeric":
        roles.setdefault("numeric", set()).update(response_columns)
    names = sorted(response_columns | _names(roles) | ({formula.group} if formula.group else set()))
    frame, rows, num_missing = _complete_rows(as_frame(data), names, missing)
    check_finite(frame, names)
    codes, labels = _groups(frame, formula.group)
    table, examples = _prepare(frame, roles)
    for terms in (fixed_terms, random_terms):
        _check_size(terms, table, examples, max_columns)
    sample = _sample_rows(len(table), examples)
    fixed, expected_X = _build_part(fixed_terms, table, sample)
    random, expected_Z = _build_part(random_terms, table, sample)
    recipe = ColumnRecipe(fixed, random, _offsets(fixed_terms, table))
    X, Z, offset = recipe.evaluate(table)
    _check_recipe(recipe, frame.iloc[sample], (X[sample], Z[sample]), (expected_X, expected_Z))
    return Design(
        X=X,
        fixed_names=recipe.fixed_names,
        Z=Z,
        random_names=recipe.random_names,
        offset=offset,
        response=_response(response, frame, table),
        response_name=_name(response),
        group_codes=codes,
        group_labels=labels,
        rows=rows,
        num_missing=num_missing,
        columns=recipe,
    )


def _complete_rows(
    frame: pd.DataFrame, names: list[str], missing: str
) -> tuple[pd.DataFrame, NDArray[np.int64], int]:
    if missing not in ("drop", "error"):
        raise ValueError(f"missing must be 'drop' or 'error', not {missing!r}.")
    if len(frame) == 0:
        raise ValueError("the data has no rows. Give at least one observation.")
    absent = np.zeros(len(frame), dtype=bool)
    for name in names:
        absent |= read_column(frame, name).isna().to_numpy(dtype=bool)
    rows = np.flatnonzero(~absent).astype(np.int64)
    num_missing = len(frame) - len(rows)
    if num_missing == 0:
        return frame, rows, 0
    counts = ", ".join(f"{name!r} {count}" for name, count in missing_counts(frame, names).items())
    if missing == "error":
        raise ValueError(
            f"{num_missing} of {len(frame)} rows have missing values: {counts}. "
            "Fill them, or drop the rows with missing='drop'."
        )
    if len(rows) == 0:
        raise ValueError(f"no row is without missing values ({counts}). Fill them or leave columns out.")
    return frame[names].iloc[rows], rows, num_missing


def _groups(frame: pd.DataFrame, group: str | None) -> tuple[NDArray[np.int64] | None, NDArray[Any] | None]:
    if group is None:
        return None, None
    codes, labels = pd.factorize(read_column(frame, group), sort=True)
    if len(labels) < 2:
        raise ValueError(
            f"the grouping column {group!r} has one group only ({listing(labels)}); a random effect needs at "
            f"least two. Leave out the term (... | {group})."
        )
    return codes.astype(np.int64, copy=False), np.asarray(labels)


def _prepare(
    frame: pd.DataFrame, roles: dict[str, set[str]]
) -> tuple[pd.DataFrame, dict[str, NDArray[np.intp]]]:
    """Returns the columns in the types that formulae reads well, and for every factor a row of each level."""
    numeric = roles.get("numeric", set()) | roles.get("offset", set())
    factor, plain = roles.get("factor", set()), roles.get("plain", set())
    columns: dict[str, Any] = {}
    examples: dict[str, NDArray[np.intp]] = {}
    for name in sorted(_names(roles)):
        column = read_column(frame, name)
        textual = column_kind(column) == "factor"
        values = _ordered(column) if textual or name in factor else None
        if values is not None:
            examples[name] = np.empty(len(values.categories), dtype=np.intp)
            examples[name][values.codes] = np.arange(len(frame))
        if values is None or name in numeric or (name in plain and not textual):
            values = read_numeric(frame, name)
            # Integers and booleans that are also factors keep their type, for the names of their levels.
            values = column.to_numpy(dtype=_native(column)) if name in factor else values
        columns[name] = values
    return pd.DataFrame(columns, index=range(len(frame)), copy=False), examples


def _native(column: pd.Series) -> type:
    if pd.api.types.is_bool_dtype(column.dtype):
        return np.bool_
    return np.int64 if pd.api.types.is_integer_dtype(column.dtype) else np.float64


def _ordered(column: pd.Series) -> pd.Categorical:
    """Returns a factor with its used levels only: categories in their order, all else sorted."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        used = column.cat.remove_unused_categories()
        codes, levels = used.cat.codes.to_numpy(), used.cat.categories
    else:
        codes, levels = pd.factorize(column, sort=True)
    return pd.Categorical.from_codes(codes, [plain_level(level) for level in levels], ordered=True)


def _check_size(
    terms: list[Any], table: pd.DataFrame, examples: dict[str, NDArray[np.intp]], max_columns: int
) -> None:
    """Refuses designs that are too wide before they are built; counts a column per set of levels."""
    worst, most, total = "", 1, 0
    for term in terms:
        width = 1
        for component in _components(term):
            role, columns = _role(component)
            name = min(columns, default="")
            if role == "factor" or (role == "plain" and isinstance(table[name].dtype, pd.CategoricalDtype)):
                levels = len(examples[name])
                width *= levels
                worst, most = (name, levels) if levels > most else (worst, most)
            if role == "factor":
                _check_reference(component.call, table[name].iloc[examples[name]].tolist())
        total += width
    size = total * len(table) * 8
    if worst and (total > max_columns or size > _MAX_BYTES):
        raise ValueError(
            f"column {worst!r} has {most:,} levels, which leads to about {total:,} columns for "
            f"{len(table):,} rows ({size / 2**30:,.1f} GiB); at most {max_columns:,} columns and "
            f"{_MAX_BYTES / 2**30:.0f} GiB are built. Use a random effect, (1 | {worst}), or fewer levels. "
            f"If {worst!r} holds numbers as text, convert it with pd.to_numeric."
        )


def _check_reference(call: Any, levels: list[Any]) -> None:
    """Checks the level that T(x, 'a'), S(x, 'a') or C(x, Treatment('a')) names."""
    for lazy in [*call.args[1:], *call.kwargs.values()]:
        values = [*lazy.args, *lazy.kwargs.values()] if isinstance(lazy, LazyCall) else [lazy]
        for value in values:
            if isinstance(value, LazyValue) and value.value is not None and value.value not in levels:
                raise ValueError(f"{call}: {value} is not a level. Levels: {listing(levels)}.")


def _sample_rows(num_rows: int, examples: dict[str, NDArray[np.intp]]) -> NDArray[np.intp]:
    spread = np.linspace(0, num_rows - 1, min(num_rows, _CHECK_ROWS)).astype(np.intp)
    return np.unique(np.concatenate([spread, *examples.values()]))


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
    if isinstance(lazy, LazyCall) and lazy.callee in (*_STATEFUL, *_BASES):
        return True
    return any(_has_state(arg) for arg in getattr(lazy, "args", ()))


def _build_part(
    terms: list[Any], table: pd.DataFrame, sample: NDArray[np.intp]
) -> tuple[tuple[TermRecipe, ...], Array]:
    """Returns the recipe of a part and what formulae makes of the sample rows."""
    terms = [term for term in terms if "offset" not in _roles([term])]
    if all(isinstance(term, Intercept) for term in terms):
        return tuple(TermRecipe(("Intercept",)) for _ in terms), np.ones((len(sample), len(terms)))
    for component in (component for term in terms for component in _components(term)):
        if not isinstance(component, Variable):
            _learn(component.call, table)
    model = Model(*terms)
    with _quiet():
        common: Any = DesignMatrices(model, table.iloc[sample], Environment([_NAMESPACE])).common
    recipes = tuple(
        TermRecipe(tuple(term.labels), tuple(_recipe(component) for component in _components(term)))
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
        return _polynomial(_expression(call.args[0]), call.stateful_transform)
    if call.callee == "bs":
        return _spline(_expression(call.args[0]), call.stateful_transform)
    return Numeric(_expression(call))


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
    return Spline(
        expression, tuple(knots.tolist()), int(degree), tuple(tuple(row) for row in transform.tolist())
    )


def _offsets(terms: list[Any], table: pd.DataFrame) -> tuple[Expression, ...]:
    calls = [term.components[0].call for term in terms if "offset" in _roles([term])]
    for call in calls:
        _learn(call.args[0], table)
    return tuple(_expression(call.args[0]) for call in calls)


def _response(component: Any, frame: pd.DataFrame, table: pd.DataFrame) -> pd.Series:
    if isinstance(component, Variable):
        return read_column(frame, component.name)
    _learn(component.call, table)
    term = TermRecipe((_name(component),), (Numeric(_expression(component.call)),))
    return pd.Series(assemble((term,), table)[:, 0], index=frame.index, name=_name(component))


def _check_recipe(
    recipe: ColumnRecipe, sample: pd.DataFrame, built: tuple[Array, Array], expected: tuple[Array, Array]
) -> None:
    for mine, again, theirs in zip(built, recipe.apply(sample)[:2], expected, strict=True):
        for matrix in (mine, again):
            if matrix.shape != theirs.shape or not np.allclose(
                matrix, theirs, rtol=_TOLERANCE, atol=_TOLERANCE
            ):
                names = listing(recipe.fixed_names + recipe.random_names)
                raise ValueError(
                    f"the recipe of the columns {names} does not reproduce what formulae "
                    f"{formulae.__version__} builds. Compute transformed columns in the data frame first, "
                    "and please report this formula."
                )
