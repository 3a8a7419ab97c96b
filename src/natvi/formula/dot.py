"""The dot of a formula: in `y ~ .` all columns that are not named elsewhere, in a change what was there before."""

import formulae.expr as syntax
import pandas as pd

from natvi.formula.design import parse_formula
from natvi.formula.frames import as_frame
from natvi.formula.left_side import read_left_side
from natvi.formula.raw_columns import listing
from natvi.formula.syntax import DOT, parse, render, replace_outside_quotes, summands, syntax_error, ungroup, walk

_PLACE = "every_other_column_"
_BEFORE = "what_was_there_"
_TOGETHER = 100  # names in one sum: parsers descend one level per summand


def has_dot(formula: str) -> bool:
    """Tells whether a dot stands for columns in a formula.

    Example:
        >>> has_dot("y ~ . + (1 | g)"), has_dot("y ~ np.log(x) + 0.5")
        (True, False)
    """
    return isinstance(formula, str) and replace_outside_quotes(DOT, _PLACE, formula) != formula


def refuse_dot(formula: str) -> str:
    """Returns the formula, which has no dot; of rows that are read in pieces nobody has the columns at hand.

    Example:
        >>> refuse_dot("y ~ x")
        'y ~ x'
    """
    if has_dot(formula):
        raise ValueError(
            f"the '.' in {formula!r} stands for all other columns, which are not at hand where rows come in pieces or "
            "lie in many processes. Write them out, y ~ x + z."
        )
    return formula


def expand_dot(formula: str, data: object, weights: object = None) -> str:
    """Returns the formula with the columns of the data in place of a dot; without a dot, as it is.

    Args:
        formula: Such as `"y ~ . + (1 | g)"`.
        data: A DataFrame, or what can be made one.
        weights: The name of the column of weights, which the dot leaves out; anything else does not matter.

    Returns:
        The formula with the names written out.

    Raises:
        ValueError: If the dot stands left of `~`, in a function, or for nothing.

    Example:
        >>> expand_dot("y ~ . + (1 | g)", {"y": [1.0], "g": ["a"], "x": [2.0], "a b": [0.5]})
        'y ~ (x + `a b`) + (1 | g)'
    """
    if not has_dot(formula):
        return formula
    tree = parse(replace_outside_quotes(DOT, _PLACE, formula))
    right = getattr(tree, "right", None)
    places = sum(_is_name(node) for node in walk(tree))
    if right is None or sum(_is_name(node) for node in walk(right, into_calls=False)) != places:
        raise syntax_error(formula, "'.' stands for all other columns right of '~', not in a function")
    parsed = parse_formula(replace_outside_quotes(DOT, f"({_PLACE} + {_PLACE}2)", formula))
    taken = {
        *read_left_side(parsed.response).all_columns,
        *parsed.group_columns,
        weights if isinstance(weights, str) else None,
    }
    names = [_quoted(name) for name in _texts(as_frame(data)) if name not in taken]
    if not names:
        raise ValueError(f"the '.' in {formula!r} stands for all other columns, and there are none. Write 1 instead.")
    sums = [" + ".join(names[at : at + _TOGETHER]) for at in range(0, len(names), _TOGETHER)]
    inside = sums[0] if len(sums) == 1 else " + ".join(f"({part})" for part in sums)
    return replace_outside_quotes(DOT, f"({inside})", formula)


def change_formula(old: str, new: str) -> str:
    """Returns the new formula with the old one in place of its dots.

    Args:
        old: The formula of a model.
        new: Such as `". ~ . + age"` or `"y ~ . - (1 | g)"`; without a dot it is taken as it is.

    Returns:
        A formula without dots. What is taken away must be one of the summands of the old one, or it is left to the
        expansion of terms, which takes `x` out of `x*z`.

    Raises:
        ValueError: If a dot does not stand alone, or random effects are taken away that are not there.

    Example:
        >>> change_formula("log(y) ~ x*z + (1 | g)", ". ~ . - (1 | g) + age")
        'log(y) ~ x*z + age'
    """
    if not isinstance(new, str) or "~" not in new:
        raise ValueError(f"a change of a formula is a text such as '. ~ . + age', not {new!r}.")
    if replace_outside_quotes(DOT, _BEFORE, new) == new:
        return new
    before, after = parse(old), parse(replace_outside_quotes(DOT, _BEFORE, new))
    left = render(before.left) if _is_name(ungroup(after.left), _BEFORE) else render(after.left)
    items: list[tuple[str, str]] = []
    for sign, item in summands(after.right):
        if _is_name(ungroup(item), _BEFORE):
            items += [(old_sign, render(part)) for old_sign, part in summands(before.right)]
        elif sign == "-" and (here := [at for at, part in enumerate(items) if part == ("+", render(item))]):
            items.pop(here[0])
        elif sign == "-" and "|" in render(item):
            raise ValueError(f"{render(item)} is to be taken away from {old!r}, which does not hold it.")
        else:
            items.append((sign, render(item)))
    text = " ".join(f"{sign} {part}" for sign, part in items or [("+", "1")])
    changed = f"{left} ~ {text.removeprefix('+ ')}"
    if _BEFORE in changed:
        raise syntax_error(new, "'.' stands alone on its side, or is a summand of it")
    return changed


def _is_name(node: object, name: str = _PLACE) -> bool:
    return isinstance(node, syntax.Variable) and node.name.lexeme == name


def _texts(frame: pd.DataFrame) -> list[str]:
    wrong = [name for name in frame.columns if not isinstance(name, str) or not name or "`" in name]
    if wrong:
        raise ValueError(
            f"'.' needs columns whose names are texts without backquotes; got {listing(wrong)}. Rename these columns."
        )
    return list(frame.columns)


def _quoted(name: str) -> str:
    plain = name.isidentifier() and name.isascii() and name[0] != "_" and name not in ("True", "False", "None")
    return name if plain else f"`{name}`"
