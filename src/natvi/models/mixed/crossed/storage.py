"""A fitted crossed model back from its stored form."""

from typing import Any

import numpy as np

from natvi.families.table import find_family
from natvi.formula.columns import ColumnRecipe
from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedFactor, CrossPattern
from natvi.models.mixed.crossed.components import FittedTerm
from natvi.models.mixed.crossed.gaussian import GaussianCrossedFit, Source
from natvi.models.mixed.crossed.integrated.posterior import IntegratedFit
from natvi.models.mixed.crossed.posterior import CrossedFit
from natvi.models.mixed.groups import plain_labels
from natvi.models.regression import file_check
from natvi.models.regression.file_check import check_columns
from natvi.models.regression.prior.storage import restore_prior
from natvi.result.file_check import check_contents, is_count, is_flag, is_labels, is_names, is_text, is_texts, or_none

TERM = {
    "group": is_text,
    "columns": is_names,
    "names": lambda value: is_names(value) and bool(value),
    "labels": is_labels,
    "correlated": is_flag,
    "first": is_count,
    "place": is_count,
    "omega": is_count,
}
FIELDS = {
    **file_check.FIELDS,
    "formula": is_text,
    "link": or_none(is_text),
    "fixed_names": is_names,
    "terms": lambda value: isinstance(value, list) and bool(value) and all(map(_is_term, value)),
    "notes": is_texts,
    "choice": is_text,
}


def _is_term(value: Any) -> bool:
    return isinstance(value, dict) and all(name in value and ask(value[name]) for name, ask in TERM.items())


def check(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
    """Raise unless the file holds what a fitted crossed model stores."""
    check_contents(arrays, document, FIELDS, {"integrated": lambda value: isinstance(value, dict)})
    random = [name for term in document["terms"] for name in term["names"]]
    check_columns(document.get("columns"), document["fixed_names"], random)


def restore(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> CrossedFit:
    """Rebuild the model."""
    terms = tuple(
        FittedTerm(
            term["group"],
            tuple(term["columns"]),
            tuple(term["names"]),
            plain_labels(term["labels"]),
            *(term[name] for name in ("correlated", "first", "place", "omega")),
        )
        for term in document["terms"]
    )
    effects = sum(term.r * term.num_levels for term in terms)
    names = tuple(document["fixed_names"])
    for name in ("effect_mean", "effect_sd"):
        if arrays[name].shape != (effects,):
            raise ValueError(f"the array {name!r} has shape {arrays[name].shape}, and {(effects,)} is needed")
    common = {
        "formula": document["formula"],
        "family": find_family(document["family"], document["link"]),
        "columns": ColumnRecipe.from_dict(document["columns"]),
        "fixed_names": names,
        "terms": terms,
        "prior": restore_prior(arrays, document["prior"], names, sum(term.r for term in terms)),
        "num_rows": document["num_rows"],
        "notes": tuple(document["notes"]),
        "effect_mean": arrays["effect_mean"],
        "effect_sd": arrays["effect_sd"],
        "choice": document["choice"],
    }
    return _integrated(arrays, common, document) if "integrated" in document else _gaussian(arrays, common)


def _gaussian(arrays: dict[str, np.ndarray], common: dict[str, Any]) -> GaussianCrossedFit:
    nothing = np.zeros(0, dtype=np.int32)
    level, coordinate = (arrays[f"pattern_{name}"].astype(np.int32) for name in ("level", "coordinate"))
    factor = BlockedFactor(*(arrays[f"factor_{name}"] for name in BlockedFactor._fields))  # type: ignore[arg-type]
    mean = ArrowVector(arrays["mean_local"], arrays["mean_shared"])  # type: ignore[arg-type]
    (r, n), G, b = mean.local.shape, len(mean.shared), len(arrays["shared_covariance"])
    shapes = (factor.local.shape, factor.cross.shape, factor.pairs.shape, factor.shared.shape)
    if shapes != ((r, r, n), (b, r, n), (r, len(level)), (G, G)) or r * n + G - b != len(common["effect_mean"]):
        raise ValueError("the arrays of the Gaussian do not fit together")
    within = len(level) == 0 or (0 <= level.min() and level.max() < n and coordinate.max() < G - b)
    if len(level) != len(coordinate) or not within or np.any(np.diff(level) < 0) or np.any(coordinate < 0):
        raise ValueError("the pattern does not belong to the effects of the model")
    source = Source(mean, factor, CrossPattern(level, coordinate, nothing, nothing))  # type: ignore[arg-type]
    return GaussianCrossedFit(**common, source=source, shared_covariance=arrays["shared_covariance"])


def _integrated(arrays: dict[str, np.ndarray], common: dict[str, Any], document: dict[str, Any]) -> IntegratedFit:
    weights, hyper, drawn = arrays["draws_weights"], arrays["points_hyper"], arrays["draws_beta"]
    m, p, d = len(weights), len(common["fixed_names"]), len(drawn)
    h = len(common["prior"].mean) - p
    shapes = {
        "points_hyper": (m, h),
        "points_beta": (m, p),
        "points_covariance": (m, p, p),
        "draws_beta": (d, p),
        "draws_effects": (d, len(common["effect_mean"])),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape or d % max(m, 1) or not d:
            raise ValueError(f"the array {name!r} has shape {arrays[name].shape}, and {shape} is needed")
    return IntegratedFit(
        **common,
        hyper=hyper,
        weights=weights,
        beta=arrays["points_beta"],
        beta_covariance=arrays["points_covariance"],
        drawn_beta=drawn,
        drawn_effects=arrays["draws_effects"],
        pareto_k=float(document["integrated"]["pareto_k"]),
    )
