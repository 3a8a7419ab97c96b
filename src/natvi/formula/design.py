"""Formulas: from `"y ~ 1 + x*trt + (1 + x | group)"` and a data frame to arrays.

formulae reads the syntax, expands the terms and chooses the coding of the factors. It is shown only a few
hundred rows, enough to see every level, and never the grouping column, for which it would build dense
arrays as wide as the number of groups. All other work is done by the column recipe, so that training data
and new data go through the same code.

Booleans are numbers (0 and 1); `C(flag)` makes a factor of them. Text and categories are factors; a
categorical column keeps its order of categories, so that the first one in use is the reference level.

Left of `~`, `p(y, n)` (also `prop` and `proportion`) means y successes of n trials.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from natvi.formula.columns import ColumnRecipe
from natvi.formula.frames import as_frame
from natvi.formula.grouping.levels import RandomTerm, TermDesign, groupings, level_rows
from natvi.formula.left_side import LeftSide, read_left_side
from natvi.formula.raw_columns import Array, check_finite, check_text, listing
from natvi.formula.syntax import is_binary, parse, render, summands, syntax_error, ungroup, walk
from natvi.formula.term_recipes import build_part, check_part, check_recipe, offset_expressions, renamed
from natvi.formula.terms import column_names, expand_terms, roles_of
from natvi.formula.training_table import check_size, complete_rows, group_rows, prepare_table, sample_rows
from natvi.formula.weights import read_weights

_LONG = 200


@dataclass(frozen=True)
class Formula:
    """A formula, taken apart.

    Attributes:
        text: The formula as it was given.
        response: Left of `~`: a column, an expression such as `log(y)`, or `p(y, n)`.
        fixed: Fixed part with its intercept spelled out, such as `"1 + base*trt"`.
        random: Left of `|`, such as `"1 + Days"`; `"0"` without a grouping factor.
        group: Name of the grouping column, or None.
        correlated: False for `(1 + x || g)`: the covariance matrix of the random effects is diagonal, every
            column of Z independent of the others. So are the columns of one factor; lme4 keeps those
            correlated, and gives the same where all columns are numbers.
        terms: The random terms where there are several, or where groups are combinations of columns: crossed and
            nested factors; `random` and `group` then say nothing.
    """

    text: str
    response: str
    fixed: str
    random: str
    group: str | None
    correlated: bool = True
    terms: tuple[RandomTerm, ...] = ()

    @property
    def group_columns(self) -> tuple[str, ...]:
        """Names of all grouping columns."""
        alone = () if self.group is None else (self.group,)
        return tuple(dict.fromkeys([*alone, *(column for term in self.terms for column in term.columns)]))

    @property
    def has_groups(self) -> bool:
        """Whether there are random effects."""
        return self.group is not None or bool(self.terms)


class PartDesign(NamedTuple):
    """The columns of a further formula: its name, with which theirs begin, and how many of X and Z are its own."""

    name: str
    columns: int
    effects: int


@dataclass(frozen=True, eq=False)
class Design:
    """Arrays of a model, for the N rows in use.

    Attributes:
        X: Fixed-effects columns, shape (N, p).
        fixed_names: Their p names.
        Z: Random-effects columns, shape (N, r); r = 0 without a grouping factor.
        random_names: Their r names.
        offset: Sum of the offsets, shape (N,).
        response: The response column as it is in the data, the values of the response expression, or the
            successes of `p(y, n)`.
        response_name: Its name.
        group_codes: Group number of every row, shape (N,), or None.
        group_labels: Label of every group in sorted order, or None.
        rows: Positions of the rows in use in the original data, shape (N,).
        num_missing: Number of rows dropped for missing values.
        columns: Recipe that rebuilds X, Z and the offset for new data.
        trials: Trials of `p(y, n)`, shape (N,), as they are in the data; or None.
        weights: Weight of every row, positive, shape (N,); or None.
        num_zero_weight: Number of rows dropped for a weight of zero.
        correlated: Whether the random effects of a group may be correlated.
        terms: The random terms of crossed or nested factors; the columns of Z are theirs, one term after the other.
        parts: What of the columns belongs to further formulas; they stand behind those of the first.
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
    trials: Array | None = None
    weights: Array | None = None
    num_zero_weight: int = 0
    correlated: bool = True
    terms: tuple[TermDesign, ...] = ()
    parts: tuple[PartDesign, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was decided about the weights, for the summary."""
        if not self.num_zero_weight:
            return ()
        total = self.num_zero_weight + self.num_missing + len(self.rows)
        return (f"{self.num_zero_weight:,} of {total:,} rows left out: weight zero",)

    @property
    def group_sizes(self) -> NDArray[np.int64] | None:
        """Number of rows of every group, or None without a grouping factor."""
        if self.group_codes is None or self.group_labels is None:
            return None
        return np.bincount(self.group_codes, minlength=len(self.group_labels)).astype(np.int64)


def parse_formula(formula: str) -> Formula:
    """Takes a formula apart and checks that all of it is understood.

    Args:
        formula: Such as `"y ~ base*trt + log(age) + (1 + visit | subject)"`. Any number of random terms: crossed
            `(1 | a) + (1 | b)`, nested `(1 | a/b)`, combinations `(1 | a:b)`; `||` instead of `|` makes the
            random effects uncorrelated. Only known functions may be called; nothing else is ever executed.

    Returns:
        The parts, with intercepts spelled out.

    Raises:
        ValueError: For a formula that cannot be read or is not supported, with the cure.

    Example:
        >>> parse_formula("y ~ base*trt + (Days | Subject)").fixed
        '1 + base*trt'
    """
    left, right = _sides(formula)
    if is_binary(ungroup(left), "STAR_STAR"):
        raise ValueError(f"for a power of the response write I({render(ungroup(left))}) ~ ....")
    plain: list[str] = []
    bars: list[Any] = []
    for sign, item in summands(right):
        inner = ungroup(item)
        num_bars = sum(is_binary(node, "PIPE") for node in walk(inner))
        if num_bars == 1 and is_binary(inner, "PIPE") and sign == "+":
            bars.append(inner)
        elif num_bars:
            raise ValueError(
                f"random effects are added one by one, as in 'y ~ x + (1 | g)'; got {sign} {render(item)}."
            )
        else:
            plain.append(f"{sign} {render(item)}")
    terms = _random_terms(bars)
    simple = len(terms) == 1 and len(terms[0].columns) == 1
    random, group, correlated = "0", None, True
    if simple:
        random, group, correlated = terms[0].effects, terms[0].group, terms[0].correlated
    fixed = _right_hand_side(plain)
    parsed = Formula(formula, render(left), fixed, random, group, correlated, () if simple else terms)
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
    tree = parse(text)
    if not is_binary(tree, "TILDE"):
        raise syntax_error(text, "'~' must separate the response from the predictors")
    return tree.left, tree.right


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


def _random_terms(bars: list[Any]) -> tuple[RandomTerm, ...]:
    """Returns the random terms, one for each grouping factor of each bar."""
    return tuple(
        RandomTerm(_right_hand_side(_signed(bar)), columns, bar.operator.lexeme == "|")
        for bar in bars
        for columns in groupings(bar.right)
    )


def _signed(bar: Any) -> list[str]:
    return [f"{sign} {render(item)}" for sign, item in summands(ungroup(bar.left))]


def _check_formula(formula: Formula) -> tuple[LeftSide, list[Any], list[list[Any]]]:
    """Returns the left side, formulae's fixed terms and those of each random term; raises if they are not supported."""
    response = read_left_side(formula.response)
    fixed = expand_terms(formula.fixed)
    alone = RandomTerm(formula.random, () if formula.group is None else (formula.group,), formula.correlated)
    written = formula.terms or (alone,)
    random = [expand_terms(term.effects) for term in written]
    for term, found in zip(written, random, strict=True):
        if term.columns and not found:
            raise ValueError(f"{term.text} is empty. Write (1 | {term.group}).")
    together = [term for part in random for term in part]
    if "offset" in roles_of(together):
        raise ValueError("offset() cannot stand left of '|'. Write it among the fixed effects.")
    both = response.columns & (column_names(roles_of(fixed + together)) | set(formula.group_columns))
    if both:
        raise ValueError(f"{min(both)!r} stands on both sides of '~'. Remove it from the right.")
    return response, fixed, random


def raw_columns(formula: Formula) -> tuple[tuple[str, ...], frozenset[str]]:
    """Returns the names of all columns that a formula reads, and of those that it makes factors of.

    Example:
        >>> raw_columns(parse_formula("log(y) ~ x + C(z) + (1 | g)"))
        (('g', 'x', 'y', 'z'), frozenset({'z'}))
    """
    response, fixed, random = _check_formula(formula)
    roles = roles_of(fixed + [term for part in random for term in part])
    names = response.all_columns | column_names(roles) | set(formula.group_columns)
    return tuple(sorted(names)), frozenset(roles.get("factor", set()))


def build_design(
    formula: Formula,
    data: Any,
    missing: str = "drop",
    weights: Any = None,
    *,
    max_columns: int = 5000,
    parts: Mapping[str, Formula] | None = None,
) -> Design:
    """Builds the arrays of a model from training data.

    Args:
        formula: From `parse_formula`.
        data: A DataFrame, or what can be made one.
        missing: `"drop"` leaves out rows with a missing value in a column of the formula and counts them;
            `"error"` raises.
        weights: Name of a column, or one number for each row of `data`: how often the row counts. Rows of
            weight zero are left out; a missing weight is a missing value of its row.
        max_columns: Largest number of columns that factors may lead to.
        parts: Further formulas of the same response by their names, with the groups of the first or without.

    Returns:
        The arrays, and the recipe that rebuilds them for new data.

    Raises:
        ValueError: For data that does not suit the formula, with the cure.
    """
    response, fixed_terms, random_parts = _check_formula(formula)
    others = [_check_formula(part)[1:] for part in (parts or {}).values()]
    for name, (terms, _) in zip(parts or {}, others, strict=True):
        check_part(name, terms, "offset" in roles_of(terms))
    further = [term for fixed, random in others for terms in (fixed, *random) for term in terms]
    random_terms = [term for part in random_parts for term in part]
    roles = roles_of(fixed_terms + random_terms + further)
    if response.role == "numeric":
        roles.setdefault("numeric", set()).update(response.all_columns)
    names = sorted(response.all_columns | column_names(roles) | set(formula.group_columns))
    frame = as_frame(data)
    weighing = read_weights(weights, frame)
    frame, rows, num_missing = complete_rows(frame, names, missing, weighing)
    check_finite(frame, names)
    codes, labels = group_rows(frame, formula.group)
    table, examples = prepare_table(frame, roles)
    for terms in (fixed_terms, random_terms, further):
        check_size(terms, table, examples, max_columns)
    check_text(frame, sorted(roles_of(fixed_terms + random_terms + further).get("plain", ())))
    sample = sample_rows(len(table), examples)
    fixed, expected_X = build_part(fixed_terms, table, sample)
    built = [build_part(terms, table, sample) for terms in random_parts]
    random, expected_Z = _together(built)
    terms = _term_designs(formula, frame, [found for found, _ in built])
    own = []
    for name, (fixed_part, random_part) in zip(parts or {}, others, strict=True):
        pairs = [build_part(fixed_part, table, sample), *(build_part(each, table, sample) for each in random_part)]
        (more, X), (effects, Z) = pairs[0], _together(pairs[1:])
        fixed, random = fixed + renamed(more, name), random + renamed(effects, name)
        expected_X, expected_Z = np.hstack([expected_X, X]), np.hstack([expected_Z, Z])
        own.append(PartDesign(name, X.shape[1], Z.shape[1]))
    weight_column = weighing.expression if weighing else None
    recipe = ColumnRecipe(fixed, random, offset_expressions(fixed_terms, table), response.trials, weight_column)
    X, Z, offset = recipe.evaluate(table)
    check_recipe(recipe, frame.iloc[sample], (X[sample], Z[sample]), (expected_X, expected_Z))
    values, trials = response.evaluate(frame, table)
    return Design(
        X=X,
        fixed_names=recipe.fixed_names,
        Z=Z,
        random_names=recipe.random_names,
        offset=offset,
        response=values,
        response_name=response.name,
        group_codes=codes,
        group_labels=labels,
        rows=rows,
        num_missing=num_missing,
        columns=recipe,
        trials=trials,
        weights=weighing.values[rows] if weighing else None,
        num_zero_weight=int((weighing.values == 0.0).sum()) if weighing else 0,
        correlated=formula.correlated,
        terms=terms,
        parts=tuple(own),
    )


def _together(built: list[tuple[Any, Array]]) -> tuple[Any, Array]:
    return tuple(term for found, _ in built for term in found), np.hstack([Z for _, Z in built])


def _term_designs(formula: Formula, frame: pd.DataFrame, recipes: list[Any]) -> tuple[TermDesign, ...]:
    """Returns the random terms of crossed or nested factors with their levels; refuses an effect given twice."""
    found: list[TermDesign] = []
    levels: dict[tuple[str, ...], tuple[Any, Any]] = {}
    for term, recipe in zip(formula.terms, recipes, strict=False):
        key = tuple(sorted(term.columns))
        if key not in levels:
            levels[key] = level_rows(frame, term.columns)
        names = tuple(name for part in recipe for name in part.names)
        for other in found:
            twice = set(names) & set(other.names)
            if set(other.columns) == set(term.columns) and twice:
                raise ValueError(
                    f"the random effect of {listing(sorted(twice))} stands in two terms of {term.group!r}: the data "
                    f"cannot tell them apart. Keep it in one of them, as in (1 | g) + (0 + x | g)."
                )
        first = found[-1].stop if found else 0
        stop = first + len(names)
        found.append(TermDesign(term.group, term.columns, first, stop, names, *levels[key], term.correlated))
    return tuple(found)
