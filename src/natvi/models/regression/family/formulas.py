"""Formulas of numbers beside the mean, `dispersion="~ x"` and `zero="~ x + (1 | g)"`: read and put into a design."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from natvi.families.family import Extra, Family, Part
from natvi.families.parts import PARTS, find_part, with_parts
from natvi.formula.design import Design, Formula, PartDesign, build_design, parse_formula

ALONE = (
    "Formulas of the dispersion and of zeros are for natvi.glm and natvi.glmm on a table in one piece: leave "
    "{word}= out here."
)


def given_parts(dispersion: Any, zero: Any) -> dict[str, Any]:
    """Return the formulas that were given, by the words at the doors."""
    return {word: text for word, text in zip(PARTS, (dispersion, zero), strict=True) if text is not None}


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


def refuse_parts(given: Mapping[str, Any]) -> None:
    """Say that there are no further formulas at this door."""
    if given:
        raise ValueError(ALONE.format(word=next(iter(given))))


def read_parts(formula: Formula, family: Family, given: Mapping[str, Any]) -> dict[str, Formula]:
    """Return the formulas by the names of their numbers, in the order of the family's, or say what they cannot have.

    Args:
        formula: That of the mean.
        family: The response distribution.
        given: Formulas without a response by the words at the doors.
    """
    found: dict[int, tuple[str, Formula]] = {}
    for word, text in given.items():
        place, extra = find_part(family, word)
        side = right_side(text, word)
        part = parse_formula(f"{formula.response} ~ {side}")
        _check_groups(formula, part, word)
        found[place] = extra.name, part
    grouped = [part for _, part in found.values() if part.has_groups]
    for each in [formula, *grouped] if grouped else []:
        if _several_effects(each):
            raise ValueError(
                f"the random effects ({each.random} | {each.group}) are correlated, and effects on several numbers are "
                f"independent of each other: only independent ones go together. Write ({each.random} || {each.group})."
            )
    return {name: part for _, (name, part) in sorted(found.items())}


def _several_effects(formula: Formula) -> bool:
    return formula.correlated and formula.random.replace(" ", "") not in ("0", "1")


def _check_groups(formula: Formula, part: Formula, word: str) -> None:
    if formula.terms or part.terms:
        raise ValueError(
            f"{word}= goes with one grouping factor, a column; crossed and nested factors have one number for all "
            f"rows. Keep the most important factor, or leave {word}= out."
        )
    if part.group is not None and part.group != formula.group:
        cure = (
            f"Write (1 | {formula.group}) in it, or leave the random effect out"
            if formula.group is not None
            else f"Add + (1 | {part.group}) to the formula of the mean, or leave the random effect out of {word}="
        )
        raise ValueError(
            f"{word}= has random effects of {part.group!r}, and the mean has "
            f"{'none' if formula.group is None else f'those of {formula.group!r}'}: both need the same factor. {cure}."
        )


def build_with_parts(
    formula: Formula, data: Any, missing: str, weights: Any, family: Family, given: Mapping[str, Any]
) -> tuple[Design, Family]:
    """Return the design of all formulas together, and the family with its parts."""
    if not given:
        return build_design(formula, data, missing, weights), family
    design = build_design(formula, data, missing, weights, parts=read_parts(formula, family, given))
    family = family_with(family, design.parts)
    if any(part.effects for part in design.parts):
        design = replace(design, correlated=False)
    return design, family


def family_with(family: Family, parts: tuple[PartDesign, ...]) -> Family:
    """Return the family with the parts of a design."""
    places: dict[str, tuple[int, Extra]] = {extra.name: (k, extra) for k, extra in enumerate(family.extras)}
    return with_parts(family, tuple(Part(*places[part.name], part.columns, part.effects) for part in parts))


def store_parts(family: Family) -> list[list[Any]]:
    """Return the parts as JSON values."""
    return [[part.extra.name, part.columns, part.effects] for part in family.parts]


def restore_parts(family: Family, stored: Any) -> Family:
    """Return the family with stored parts, or say that they do not belong to it."""
    names = [extra.name for extra in family.extras]
    for part in stored:
        if part[0] not in names:
            raise ValueError(f"the family {family.name!r} has no number {part[0]!r}")
    return family_with(family, tuple(PartDesign(*part) for part in stored))


def are_parts(value: Any) -> bool:
    """Whether a value of a file can be parts."""

    def one(part: Any) -> bool:
        counts = isinstance(part, list) and len(part) == 3 and isinstance(part[0], str)
        return counts and all(isinstance(k, int) and not isinstance(k, bool) and 0 <= k for k in part[1:])

    return isinstance(value, list) and all(map(one, value))
