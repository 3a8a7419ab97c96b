"""A fitted mixed model back from its stored form, by whichever method it was fitted."""

from typing import Any

import numpy as np

from natvi.families.table import find_family
from natvi.formula.columns import ColumnRecipe
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.models.mixed.groups import plain_labels
from natvi.models.mixed.marginal.posterior import restore_marginal
from natvi.models.mixed.noisy.rvb import restore_rvb
from natvi.models.mixed.posterior import MixedFit
from natvi.models.regression import file_check
from natvi.models.regression.file_check import check_columns
from natvi.models.regression.prior.storage import restore_prior
from natvi.result.file_check import (
    check_contents,
    is_count,
    is_flag,
    is_labels,
    is_names,
    is_number,
    is_text,
    or_none,
)

FIELDS = {
    **file_check.FIELDS,
    "formula": is_text,
    "fixed_names": is_names,
    "random_names": lambda value: is_names(value) and bool(value),
    "group_name": is_text,
    "group_labels": is_labels,
}
OPTIONAL = {
    "link": or_none(is_text),  # early files name none
    "correlated": is_flag,
    "choice": is_text,
    "marginal": lambda value: isinstance(value, dict) and is_number(value.get("pareto_k")),
    "rvb": lambda value: isinstance(value, dict) and is_text(value.get("way")),
}


def check(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
    """Raise unless the file holds what a fitted mixed model stores."""
    check_contents(arrays, document, FIELDS, OPTIONAL)
    for part in ("marginal", "rvb"):
        if part in document and not is_count(document[part].get("num_simple")):
            raise ValueError(f"the field 'num_simple' of {part!r} is not a number of groups")
    check_columns(document.get("columns"), document["fixed_names"], document["random_names"])
    if "rows_X" in arrays:
        _check_rows(arrays, document)


def restore(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> MixedFit:
    """Rebuild the model."""
    gaussian = _restore_gaussian(arrays, document)
    if "rvb" in document:
        return restore_rvb(gaussian, arrays, document)
    return restore_marginal(gaussian, arrays, document) if "marginal" in document else gaussian


def _restore_gaussian(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> MixedFit:
    mean = ArrowVector(arrays["mean_local"], arrays["mean_shared"])  # type: ignore[arg-type]
    factor = ArrowFactor(*(arrays[f"factor_{part}"] for part in ("local", "cross", "shared")))  # type: ignore[arg-type]
    names = tuple(document["fixed_names"])
    fit = MixedFit(
        formula=document["formula"],
        family=find_family(document["family"], document.get("link")),
        columns=ColumnRecipe.from_dict(document["columns"]),
        fixed_names=names,
        random_names=tuple(document["random_names"]),
        group_name=document["group_name"],
        group_labels=plain_labels(document["group_labels"]),
        posterior=ArrowPrecision(mean, factor, arrays["inverse_shared"]),  # type: ignore[arg-type]
        local_sds=arrays["local_sds"],
        prior=restore_prior(arrays, document["prior"], names, len(document["random_names"])),
        num_rows=document["num_rows"],
        notes=tuple(document["notes"]),
        correlated=document.get("correlated", True),
        choice=document.get("choice", ""),
    )
    r, n, g = len(fit.random_names), len(fit.group_labels), len(fit.shared_names())
    expected = {
        "mean_local": (r, n),
        "mean_shared": (g,),
        "factor_local": (r, r, n),
        "factor_cross": (g, r, n),
        "factor_shared": (g, g),
        "inverse_shared": (g, g),
        "local_sds": (r, n),
    }
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise ValueError(f"the array {name!r} has shape {arrays[name].shape}, and {shape} is needed")
    return fit


def _check_rows(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
    """The rows of the data, laid out by group, that exact draws of random effects need."""
    names = ["X", "Z", "offset", "filled", "y", "extra", "near", "place"]
    names += ["weight"] if "rows_weight" in arrays else []
    shapes = {name: arrays[f"rows_{name}"].shape for name in names}
    grid, groups = shapes["offset"], len(document["group_labels"])
    if len(grid) != 2 or any(shapes[name] != grid for name in names if name in ("filled", "y", "weight")):
        raise ValueError("the stored rows differ in shape")
    count, columns = len(document["fixed_names"]), arrays["rows_X"]
    if columns.ndim != 3 or len(columns) < count or columns.shape[1:] != grid or np.any(columns[count:]):
        needed = f"{(count, *grid)}, or more columns of zeros, is needed"  # those of `natvi.models.mixed.filling`
        raise ValueError(f"the array 'rows_X' has shape {columns.shape}, and {needed}")
    if shapes["Z"] != (len(document["random_names"]), *grid):
        needed = (len(document["random_names"]), *grid)
        raise ValueError(f"the array 'rows_Z' has shape {shapes['Z']}, and {needed} is needed")
    extra, effects = arrays["rows_extra"], len(document["random_names"])
    places = shapes["near"][-1] if shapes["near"] else 0  # groups, and empty ones that fill the layout up
    if extra.ndim != 1 or len(extra) + places != grid[1] or np.any((extra < 0) | (extra >= places)):
        raise ValueError("the stored rows do not belong to the groups of the model")
    simple = document["marginal" if "marginal" in document else "rvb"]["num_simple"]
    if simple > places or shapes["place"] != (groups,) or groups > places or shapes["near"] != (effects, places):
        raise ValueError("the stored rows do not belong to the groups of the model")
