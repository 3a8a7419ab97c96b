"""The dot of a formula: `y ~ .` means all columns that are not named elsewhere as response, group or weights."""

import formulae.expr as syntax
import pandas as pd

from natvi.formula.design import parse_formula
from natvi.formula.frames import as_frame
from natvi.formula.left_side import read_left_side
from natvi.formula.raw_columns import listing
from natvi.formula.syntax import DOT, parse, replace_outside_quotes, syntax_error, walk

_PLACE = "every_other_column_"
_TOGETHER = 100  # names in one sum: parsers descend one level per summand


def has_dot(formula: str) -> bool:
    """Tells whether a dot stands for columns in a formula.

    Example:
        >>> has_dot("y ~ . + (1 | g)"), has_dot("y ~ np.log(x) + 0.5")
        (True, False)
    """
    return isinstance(formula, str) and replace_outside_quotes(DOT, _PLACE, formula) != formula


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
    places = sum(_is_place(node) for node in walk(tree))
    if right is None or sum(_is_place(node) for node in walk(right, into_calls=False)) != places:
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


def _is_place(node: object) -> bool:
    return isinstance(node, syntax.Variable) and node.name.lexeme == _PLACE


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
