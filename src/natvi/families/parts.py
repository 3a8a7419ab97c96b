"""Parts of a model: numbers beside the mean that have a linear predictor of their own, such as `zero="~ x"`.

The columns of a model with parts are those of the mean, then those of every part; so are its random effects. A family's
functions take the dispersion as they always do, with a number for every row where a part says so.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from natvi.families.family import Extra, Family, Part

DISPERSION, ZERO = "dispersion", "zero"
PARTS = (DISPERSION, ZERO)  # the words at the doors
WITH_DISPERSION = (
    *("gaussian", "lognormal", "student_t", "gamma", "beta", "weibull", "negative_binomial"),
    *("zero_inflated_negative_binomial", "hurdle_negative_binomial"),
)
_OTHERS = {
    DISPERSION: f"Families with one: {', '.join(WITH_DISPERSION)}.",
    ZERO: "Families with zeros of their own: zero_inflated_poisson, zero_inflated_negative_binomial, hurdle_poisson, "
    "hurdle_negative_binomial.",
}


def find_part(family: Family, word: str) -> tuple[int, Extra]:
    """Return which of the family's numbers a word at the door means, or say that it has none.

    Example:
        >>> from natvi.families.table import find_family
        >>> find_part(find_family("zero_inflated_negative_binomial"), "zero")[0]
        1
    """
    for place, extra in enumerate(family.extras):
        is_zero = extra.name == ZERO
        if is_zero if word == ZERO else not is_zero and family.name in WITH_DISPERSION:
            return place, extra
    raise ValueError(f"{word}= is for families that have such a number, and {family.name!r} has none. {_OTHERS[word]}")


def with_parts(family: Family, parts: tuple[Part, ...]) -> Family:
    """Return the family whose `extras` are those that all rows still share."""
    taken = {part.place for part in parts}
    return family._replace(extras=tuple(e for k, e in enumerate(family.extras) if k not in taken), parts=parts)


def without_parts(family: Family) -> Family:
    """Return the family as the table has it."""
    return family._replace(extras=every_extra(family), parts=())


def every_extra(family: Family) -> tuple[Extra, ...]:
    """Return all numbers beside the mean, in the order in which the family's functions take them."""
    return tuple(_in_order(family, list(family.extras), [part.extra for part in family.parts]))


def _in_order(family: Family, shared: Sequence[Any], own: Sequence[Any]) -> list[Any]:
    placed, rest = {part.place: each for part, each in zip(family.parts, own, strict=True)}, iter(shared)
    return [placed[k] if k in placed else next(rest) for k in range(len(shared) + len(own))]


def join_extras(family: Family, shared: Any, own: Sequence[Any]) -> Any:
    """Return the dispersion as the family's functions take it, from what rows share and what each has of its own.

    Args:
        family: With parts or without.
        shared: The shared coordinates, their axis first where there are several; axes of rows, as wide as 1, included.
        own: Of every part its predictor.
    """
    if not own:
        return shared
    each = [] if shared is None else [shared] if family.num_extras == 1 else list(shared)
    each = _in_order(family, each, own)
    if len(each) == 1:
        return each[0]
    xp = np if all(isinstance(values, np.ndarray) for values in each) else jnp
    return xp.stack(xp.broadcast_arrays(*each))


def part_slices(family: Family, num_columns: int, num_effects: int = 0) -> list[tuple[slice, slice]]:
    """Return which columns and which random effects belong to the mean, and to every part.

    Example:
        >>> from natvi.families.table import find_family
        >>> plain = find_family("zero_inflated_poisson")
        >>> family = with_parts(plain, (Part(0, plain.extras[0], columns=2, effects=0),))
        >>> [columns for columns, _ in part_slices(family, 5)]
        [slice(0, 3, None), slice(3, 5, None)]
    """
    columns = [part.columns for part in family.parts]
    effects = [part.effects for part in family.parts]
    at = [num_columns - sum(columns), num_effects - sum(effects)]
    found = [(slice(0, at[0]), slice(0, at[1]))]
    for p, r in zip(columns, effects, strict=True):
        found.append((slice(at[0], at[0] + p), slice(at[1], at[1] + r)))
        at = [at[0] + p, at[1] + r]
    return found
