"""Columns of further formulas, such as `zero="~ x + (1 | g)"`: their names begin with the name of their number."""

from dataclasses import replace
from typing import Any

from natvi.formula.term_recipes import TermRecipe


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


def right_side(text: Any, word: str) -> str:
    """Return what stands right of `~` in a formula without a response, or say how one is written.

    Example:
        >>> right_side("~ x + (1 | g)", "zero")
        'x + (1 | g)'
    """
    if not isinstance(text, str) or not text.strip().startswith("~") or not text.strip()[1:].strip():
        raise ValueError(
            f"{word}= takes a formula without a response, such as {word}='~ x', not {text!r}. Leave it out for one "
            "number that all rows share."
        )
    return text.strip()[1:].strip()
