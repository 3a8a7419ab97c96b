"""What a saved fit must hold, checked before anything is made of it: a right checksum says only who wrote it last."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from natvi.judge.trust import CARE, GOOD, REFUSE
from natvi.run import Outcome

Arrays = Mapping[str, np.ndarray]
Check = Callable[[Any], bool]

NOTHING: Mapping[str, Check] = {}
LARGEST_COUNT = 2**53
UNFINISHED = (Outcome.NONFINITE, Outcome.SINGULAR_FACTOR, Outcome.UNBOUNDED)  # these may hold NaN, and say so
FLAGS = ("rows_filled",)
WEIGHTS = ("draws_weights", "pool_weights")
PLACES = ("rows_extra", "rows_place", "arrow_at_local", "arrow_at_shared", "pattern_level", "pattern_coordinate")


def is_text(value: Any) -> bool:
    """Whether this is a text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Whether this is True or False."""
    return isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether this is a number that a float holds."""
    return isinstance(value, float) or (isinstance(value, int) and is_count(abs(value)) and not isinstance(value, bool))


def is_count(value: Any) -> bool:
    """Whether this is a whole number of zero or more."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT


def is_texts(value: Any) -> bool:
    """Whether this is a texts."""
    return isinstance(value, list) and all(map(is_text, value))


def is_names(value: Any) -> bool:
    """Whether this is a list of texts, each once."""
    return is_texts(value) and len(set(value)) == len(value)


def is_labels(value: Any) -> bool:
    """Whether this is a list of numbers or texts, each once."""
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        return False
    return all(math.isfinite(item) for item in value if isinstance(item, float)) and len(set(value)) == len(value)


def is_seconds(value: Any) -> bool:
    """Whether this is a time by part."""
    return isinstance(value, dict) and {"compile", "run"} <= set(value) and all(map(is_number, value.values()))


def is_pairs(value: Any) -> bool:
    """Whether this is a list of a label and a number, or None in its place, each."""
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    return pairs and all(is_text(label) and (number is None or is_number(number)) for label, number in value)


def is_shapes(value: Any) -> bool:
    """Whether this is a list of shapes."""
    return isinstance(value, list) and all(isinstance(s, list) and all(map(is_count, s)) for s in value)


def is_lists(value: Any) -> bool:
    """Whether this is a dict of lists of labels."""
    return isinstance(value, dict) and all(isinstance(part, list) and is_labels(part) for part in value.values())


def or_none(check: Check) -> Check:
    """Return a check that lets None pass too."""
    return lambda value: value is None or check(value)


def one_of(*allowed: str) -> Check:
    """Return a check for one of some texts."""
    return lambda value: isinstance(value, str) and value in allowed


COMMON: dict[str, Check] = {
    "notes": is_texts,
    "method": is_text,
    "structure": is_text,
    "outcome": one_of(*map(str, Outcome)),
    "trust": one_of(GOOD, CARE, REFUSE),
    "trust_reasons": is_texts,
    "elbo": is_number,
    "elbo_se": is_number,
    "seconds": is_seconds,
}
OPTIONAL: dict[str, Check] = {
    "steps": or_none(is_count),
    "optimizer": or_none(is_text),
    "trust_numbers": is_pairs,
    "model_check": is_text,
    "model_check_reasons": is_texts,
    "model_check_numbers": is_pairs,
}


def check_contents(
    arrays: Arrays, document: Mapping[str, Any], needed: Mapping[str, Check], optional: Mapping[str, Check] = NOTHING
) -> None:
    """Raise unless every field has its type and every array finite numbers of a shape that fits the others.

    Args:
        arrays: As they were in the file.
        document: Likewise, of a known kind of model.
        needed: The fields of that kind, beside those that every fit has.
        optional: Fields that it may have.

    Raises:
        ValueError: With the name of the field or array.
    """
    needed = COMMON | dict(needed)
    for name, check in (OPTIONAL | dict(optional) | needed).items():
        if name not in document and name in needed:
            raise ValueError(f"the field {name!r} is missing")
        if name in document and not check(document[name]):
            raise ValueError(f"the field {name!r} holds {_shown(document[name])}")
    may_fail = Outcome(document["outcome"]) in UNFINISHED
    for name, array in arrays.items():
        _check_array(name, array, may_fail)
    _check_factors(arrays, may_fail)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _check_array(name: str, array: np.ndarray, may_fail: bool) -> None:
    kind = "b" if name in FLAGS else "i" if name in PLACES else "f"
    if array.dtype.kind != kind:
        raise ValueError(f"the array {name!r} is of type {array.dtype}")
    if name == "trace" and array.ndim != 1:
        raise ValueError(f"the array 'trace' has {array.ndim} axes")
    # the bound may be infinite on the way
    proper = ~np.isnan(array) if name == "prior_sd" else np.isfinite(array)  # a flat normal has an infinite sd
    if kind == "f" and name != "trace" and not may_fail and not np.all(proper):
        raise ValueError(f"the array {name!r} holds numbers that are not finite, and the fit did not fail")


def _check_factors(arrays: Arrays, may_fail: bool) -> None:
    """Refuse covariances without an inverse, and weights that are none."""
    for name in ("factor", "factor_shared", "factor_local", "inverse_shared", "tilde_factor_shared"):
        array = arrays.get(name)
        if array is None or may_fail or array.ndim == 0:
            continue
        diagonal = array if array.ndim == 1 else np.diagonal(array)
        if np.any(diagonal == 0):
            raise ValueError(f"the array {name!r} has no inverse")
    for name, least in (("prior_sd", np.nextafter(0.0, 1.0)), ("local_sds", 0.0), *((name, 0.0) for name in WEIGHTS)):
        if name in arrays and not may_fail and np.any(arrays[name] < least):
            raise ValueError(f"the array {name!r} holds negative numbers")
    for name in WEIGHTS:
        weights = arrays.get(name, np.ones(1))
        if weights.ndim != 1 or not (may_fail or abs(float(weights.sum()) - 1.0) < 1e-6):
            raise ValueError(f"the array {name!r} does not sum to one")
