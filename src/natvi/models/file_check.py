"""What a saved fit must hold, checked before anything is made of it: a right checksum says only who wrote it last."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from natvi.formula.columns import ColumnRecipe
from natvi.judge.trust import CARE, GOOD, REFUSE
from natvi.run import Outcome

Arrays = Mapping[str, np.ndarray]
Check = Callable[[Any], bool]

LARGEST_COUNT = 2**53
UNFINISHED = (Outcome.NONFINITE, Outcome.SINGULAR_FACTOR, Outcome.UNBOUNDED)  # these may hold NaN, and say so
FLAGS, NUMBERS_OF_ROWS = ("rows_filled",), ("rows_extra", "rows_place")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (
        isinstance(value, int) and _is_count(abs(value)) and not isinstance(value, bool)
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_names(value: Any) -> bool:
    return _is_texts(value) and len(set(value)) == len(value)


def _is_labels(value: Any) -> bool:
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        return False
    return all(math.isfinite(item) for item in value if isinstance(item, float)) and len(set(value)) == len(value)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, dict) and {"compile", "run"} <= set(value) and all(map(_is_number, value.values()))


def _is_pairs(value: Any) -> bool:
    """Whether this is a list of a label and a number, or None in its place, each."""
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    return pairs and all(_is_text(label) and (number is None or _is_number(number)) for label, number in value)


def _is_shapes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(s, list) and all(map(_is_count, s)) for s in value)


def _is_lists(value: Any) -> bool:
    """Whether this is a dict of lists of labels."""
    return isinstance(value, dict) and all(isinstance(part, list) and _is_labels(part) for part in value.values())


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _one_of(*allowed: str) -> Check:
    return lambda value: isinstance(value, str) and value in allowed


COMMON: dict[str, Check] = {
    "notes": _is_texts,
    "method": _is_text,
    "structure": _is_text,
    "outcome": _one_of(*map(str, Outcome)),
    "trust": _one_of(GOOD, CARE, REFUSE),
    "trust_reasons": _is_texts,
    "elbo": _is_number,
    "elbo_se": _is_number,
    "seconds": _is_seconds,
}
REGRESSION: dict[str, Check] = {
    "family": _is_text,
    "prior": lambda value: isinstance(value, str | dict),  # read and checked by `restore_prior`
    "num_rows": _is_count,
}
NEEDED: dict[str, dict[str, Check]] = {
    "deep_glm": {
        "response": _is_text,
        "sizes": lambda value: isinstance(value, list) and len(value) > 2 and all(map(_is_count, value)),
        "names": _is_texts,
        "num_rows": _is_count,
        **dict.fromkeys(("gamma_w", "shape", "scale", "y_mean", "y_scale"), _is_number),
    },
    "density": {
        "leaves": _is_names,
        "shapes": _is_shapes,
        "free_leaves": _is_names,
        "free_shapes": _is_shapes,
        "bijectors": _is_texts,
        "corrected": _is_flag,
        "num_points": _is_count,
        "coords": _is_lists,
        "dims": _is_lists,
    },
    "glm": {
        **REGRESSION,
        "formula": _or_none(_is_text),
        "link": _is_text,
        "names": _is_names,
        "intercept": _is_flag,
        "has_offset": _is_flag,
    },
    "glmm": {
        **REGRESSION,
        "formula": _is_text,
        "fixed_names": _is_names,
        "random_names": lambda value: _is_names(value) and bool(value),
        "group_name": _is_text,
        "group_labels": _is_labels,
    },
}
OPTIONAL: dict[str, Check] = {
    "steps": _or_none(_is_count),
    "link": _or_none(_is_text),
    "trust_numbers": _is_pairs,
    "model_check": _is_text,
    "model_check_reasons": _is_texts,
    "model_check_numbers": _is_pairs,
    "correlated": _is_flag,
    "choice": _is_text,
    "marginal": lambda value: isinstance(value, dict) and _is_number(value.get("pareto_k")),
    "rvb": lambda value: isinstance(value, dict) and _is_text(value.get("way")),
}


def check_contents(arrays: Arrays, document: Mapping[str, Any]) -> None:
    """Raise unless every field has its type and every array finite numbers of a shape that fits the others.

    Args:
        arrays: As they were in the file.
        document: Likewise, of a known kind of model.

    Raises:
        ValueError: With the name of the field or array.
    """
    needed = COMMON | NEEDED[document["model"]]
    for name, check in (OPTIONAL | needed).items():
        if name not in document and name in needed:
            raise ValueError(f"the field {name!r} is missing")
        if name in document and not check(document[name]):
            raise ValueError(f"the field {name!r} holds {_shown(document[name])}")
    for part in ("marginal", "rvb"):
        if part in document and not _is_count(document[part].get("num_simple")):
            raise ValueError(f"the field 'num_simple' of {part!r} is not a number of groups")
    _check_columns(document)
    for name, array in arrays.items():
        _check_array(name, array, may_fail=Outcome(document["outcome"]) in UNFINISHED)
    _check_factors(arrays, may_fail=Outcome(document["outcome"]) in UNFINISHED)
    if "rows_X" in arrays:
        _check_rows(arrays, document)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _check_columns(document: Mapping[str, Any]) -> None:
    glm = document["model"] == "glm"
    if document["model"] in ("deep_glm", "density") or (glm and document.get("columns") is None):
        return
    recipe = ColumnRecipe.from_dict(document.get("columns"))
    fixed = document["names" if glm else "fixed_names"]
    random = [] if glm else document["random_names"]
    if len(recipe.fixed_names) != len(fixed) or len(recipe.random_names) != len(random):
        raise ValueError("the columns of the model are not as many as its parameters")


def _check_array(name: str, array: np.ndarray, may_fail: bool) -> None:
    kind = "b" if name in FLAGS else "i" if name in NUMBERS_OF_ROWS else "f"
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
    for name, least in (("prior_sd", np.nextafter(0.0, 1.0)), ("local_sds", 0.0), ("draws_weights", 0.0)):
        if name in arrays and not may_fail and np.any(arrays[name] < least):
            raise ValueError(f"the array {name!r} holds negative numbers")
    if "draws_weights" in arrays:
        weights = arrays["draws_weights"]
        if weights.ndim != 1 or not (may_fail or abs(float(weights.sum()) - 1.0) < 1e-6):
            raise ValueError("the array 'draws_weights' does not sum to one")


def _check_rows(arrays: Arrays, document: Mapping[str, Any]) -> None:
    """The rows of the data, laid out by group, that exact draws of random effects need."""
    names = ["X", "Z", "offset", "filled", "y", "extra", "near", "place"]
    names += ["weight"] if "rows_weight" in arrays else []
    shapes = {name: arrays[f"rows_{name}"].shape for name in names}
    grid, groups = shapes["offset"], len(document["group_labels"])
    if len(grid) != 2 or any(shapes[name] != grid for name in names if name in ("filled", "y", "weight")):
        raise ValueError("the stored rows differ in shape")
    for name, count in (("X", len(document["fixed_names"])), ("Z", len(document["random_names"]))):
        if shapes[name] != (count, *grid):
            raise ValueError(f"the array 'rows_{name}' has shape {shapes[name]}, and {(count, *grid)} is needed")
    extra, effects = arrays["rows_extra"], len(document["random_names"])
    places = shapes["near"][-1] if shapes["near"] else 0  # groups, and empty ones that fill the layout up
    if extra.ndim != 1 or len(extra) + places != grid[1] or np.any((extra < 0) | (extra >= places)):
        raise ValueError("the stored rows do not belong to the groups of the model")
    simple = document["marginal" if "marginal" in document else "rvb"]["num_simple"]
    if simple > places or shapes["place"] != (groups,) or groups > places or shapes["near"] != (effects, places):
        raise ValueError("the stored rows do not belong to the groups of the model")
