"""The prior of a regression: chosen, or read from the user, in the coordinates that the model is fitted in.

Shared coordinates are (beta', log dispersion, omega). "default" is weakly informative and scaled to the data
(`default.py`); "paper" is N(0, 10^2) on every shared coordinate, omega being the logarithms of the diagonal and the
entries below the diagonal of the Cholesky factor W of the random effects' precision. What the user sets holds in the
user's units, at the user's zero.
"""

from typing import Any, NamedTuple

import numpy as np

from natvi.families.table import Family
from natvi.formula.margins import plain_products
from natvi.models.regression.coordinates import Coordinates
from natvi.models.regression.family.part_priors import part_defaults
from natvi.models.regression.names import extra_names, sd_names
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.prior.default import default_fixed, default_scales
from natvi.models.regression.prior.response_scale import response_scale
from natvi.models.regression.prior.scale_settings import ScaleNames
from natvi.models.regression.prior.scales import ScalePriors, place_scales
from natvi.models.regression.prior.settings import PriorSettings, normal_words, read_settings
from natvi.models.regression.prior.standard import standard_columns
from natvi.models.regression.prior.words import default_words, paper_words
from natvi.target.mixed.random_effects import omega_positions

PAPER_WIDTH = 10.0


class Prior(NamedTuple):
    """Mean and sd of every shared coordinate, words, and the priors that are not normals.

    Attributes:
        mean: Of the normals, in the coordinates of the fit.
        sd: Of the normals; infinite where `scales` holds the coordinate's prior.
        description: The prior in words, in the user's units.
        scales: Priors of sds, correlations and the dispersion.
        coordinates: The coordinates of the fit.
        names: Of the coefficients.
        note: What had to be chosen because the data do not tell it; empty otherwise.
    """

    mean: np.ndarray
    sd: np.ndarray
    description: str
    scales: ScalePriors = ScalePriors()
    coordinates: Coordinates = Coordinates()
    names: tuple[str, ...] = ()
    note: str = ""


def choose_prior(
    prior: Any,
    family: Family,
    data: PriorData,
    *,
    names: tuple[str, ...] | None = None,
    correlated: bool = True,
    random_names: tuple[str, ...] | None = None,
    group: str | None = None,
) -> Prior:
    """Return the prior for (beta', dispersion, omega) with the coordinates it holds in.

    Args:
        prior: "default"; "paper"; a number, the sd of every coefficient around zero; a dict from names of
            coefficients to an sd (around zero) or a pair (mean, sd), from "sd", single sds, "corr" and the dispersion
            to a density (`scale_settings`), in which what is not named keeps the default; or the prior of another
            model with the same parameters, whose numbers are taken as they are.
        family: The response distribution.
        data: What the default is scaled to.
        names: Names of the coefficients.
        correlated: Whether omega has the r(r+1)/2 entries of W, or only the r of its diagonal.
        random_names: Names of the random effects.
        group: The name of the grouping column.

    Returns:
        The prior.
    """
    p, r = data.X.shape[1], data.Z.shape[1]
    names = tuple(f"x{k}" for k in range(p)) if names is None else names
    size = p + family.num_extras + len(omega_positions(r, correlated))
    if isinstance(prior, Prior):
        return same_prior(prior, names, size)
    scale_names = scale_names_of(family, names, sd_names(r, random_names, group), correlated)
    settings = read_settings(prior, names, scale_names)
    if settings.base == "paper":
        mean, sd = np.zeros(size), np.full(size, PAPER_WIDTH)
        words = paper_words(scale_names, mean, sd, family, p)
        return Prior(mean, sd, words, names=names)
    return _scaled(settings, family, data, names, scale_names)


def scale_names_of(family: Family, names: tuple[str, ...], sds: tuple[str, ...], correlated: bool) -> ScaleNames:
    """Return the names of sds and dispersions."""
    own = extra_names(family, names)
    shares = tuple(name for name, extra in zip(own, family.extras, strict=True) if extra.scale == "logit")
    return ScaleNames(sds, own, correlated, shares)


def same_prior(prior: Prior, names: tuple[str, ...], size: int) -> Prior:
    """Return the prior of another model, or say that it does not fit."""
    if prior.names != names or len(prior.mean) != size:
        raise ValueError(
            f"the prior belongs to a model of {len(prior.mean)} shared parameters with the coefficients "
            f"{', '.join(prior.names)}; this one has {size}, with {', '.join(names)}. Give the prior of a model "
            "with the same parameters, or 'default'."
        )
    return prior


def _scaled(
    settings: PriorSettings, family: Family, data: PriorData, names: tuple[str, ...], scale_names: ScaleNames
) -> Prior:
    """Return the default prior with what the user has set in its place."""
    p, r = data.X.shape[1], data.Z.shape[1]
    if settings.every is not None and not r and not family.has_dispersion:  # nothing is scaled to the data
        words = f"{normal_words(0.0, settings.every)} on every coefficient"
        return Prior(np.zeros(p), np.full(p, settings.every), words, names=names)
    if family.parts:
        fixed, scales, note = part_defaults(settings, family, data, names, scale_names)
    else:
        columns = data.standard or standard_columns(data.X, data.fixed or plain_products(p), data.weights)
        has_constant = columns.has_constant
        response = data.response or response_scale(family, data.y, data.offset, data.weights, has_constant)
        fixed = default_fixed(columns, response, settings, names)
        scales, note = default_scales(settings.scales, family, data, scale_names, response), response.note
    start = p + family.num_extras
    size = start + len(omega_positions(r, scale_names.correlated))
    mean, sd = np.zeros(size), np.full(size, np.inf)
    mean[:p], sd[:p] = fixed.mean, fixed.sd
    placed = place_scales(scales, scale_names, mean, sd, start)
    words = default_words(names, fixed, scales, scale_names, family)
    if settings.every is not None:
        noun = "fixed effect" if r else "coefficient"
        words = f"{normal_words(0.0, settings.every)} on every {noun}{words and '; '}{words}"
    coordinates = Coordinates(fixed.map, scales.map)
    return Prior(mean, sd, words, placed, coordinates, names, note)
