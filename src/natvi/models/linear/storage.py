"""A fitted generalized linear model back from its stored form, Gaussian or corrected."""

from dataclasses import fields
from typing import Any

import numpy as np

from natvi.families.table import find_family
from natvi.formula.columns import ColumnRecipe
from natvi.models.linear.corrected import CorrectedFit
from natvi.models.linear.posterior import GlmFit
from natvi.models.regression import file_check
from natvi.models.regression.family.formulas import are_parts, restore_parts
from natvi.models.regression.file_check import check_columns
from natvi.models.regression.prior.storage import restore_prior
from natvi.result.file_check import check_contents, is_flag, is_names, is_text, or_none

FIELDS = {
    **file_check.FIELDS,
    "formula": or_none(is_text),
    "link": is_text,
    "names": is_names,
    "intercept": is_flag,
    "has_offset": is_flag,
}

OPTIONAL = {"parts": are_parts}  # earlier files have none


def check(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
    """Raise unless the file holds what a fitted linear model stores."""
    check_contents(arrays, document, FIELDS, OPTIONAL)
    if document.get("columns") is not None:
        check_columns(document["columns"], document["names"])


def restore(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> GlmFit:
    """Rebuild the model, by whichever method it was fitted."""
    fit = GlmFit(
        formula=document["formula"],
        family=restore_parts(find_family(document["family"], document["link"]), document.get("parts", [])),
        names=tuple(document["names"]),
        mean=arrays["mean"],
        factor=arrays["factor"],
        prior=restore_prior(arrays, document["prior"], tuple(document["names"]), 0),
        num_rows=document["num_rows"],
        notes=tuple(document["notes"]),
        columns=None if document["columns"] is None else ColumnRecipe.from_dict(document["columns"]),
        intercept=document["intercept"],
        has_offset=document["has_offset"],
    )
    _check_shapes(fit, arrays)
    return _corrected(fit, arrays, document) if "psis" in document else fit


def _check_shapes(fit: GlmFit, arrays: dict[str, np.ndarray]) -> None:
    d = len(fit.names) + fit.family.num_extras
    allowed = {"mean": [(d,)], "factor": [(d, d), (d,)], "prior_mean": [(d,)], "prior_sd": [(d,)]}
    for name, shapes in allowed.items():
        if arrays[name].shape not in shapes:
            raise ValueError(f"the array {name!r} has shape {arrays[name].shape}, and {shapes[0]} is needed")


def _corrected(fit: GlmFit, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> CorrectedFit:
    """Rebuild a corrected fit around the moments that were stored with it."""
    theta, weights = arrays["draws_theta"], arrays["draws_weights"]
    if theta.shape != (len(weights), len(fit.mean)):
        raise ValueError(f"the array 'draws_theta' has shape {theta.shape}, which does not fit the model")
    parts = {field.name: getattr(fit, field.name) for field in fields(fit)}
    return CorrectedFit(**parts, theta=theta, weights=weights, choice=str(document["psis"]["choice"]))
