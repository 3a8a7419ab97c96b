"""The prior of a model with several random terms: each has the default, or what the user set, by the same rules."""

from typing import Any, NamedTuple

import numpy as np

from natvi.families.table import Family
from natvi.formula.margins import Products, plain_products
from natvi.models.regression.coordinates import Coordinates, block_diagonal
from natvi.models.regression.names import sd_names
from natvi.models.regression.prior.choice import PAPER_WIDTH, Prior, same_prior, scale_names_of
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.prior.default import ScaleDefaults, default_fixed, default_scales
from natvi.models.regression.prior.response_scale import response_scale
from natvi.models.regression.prior.scales import ScalePriors, place_scales
from natvi.models.regression.prior.settings import normal_words, read_settings
from natvi.models.regression.prior.standard import standard_columns
from natvi.models.regression.prior.words import PAPER, default_words
from natvi.target.mixed.random_effects import omega_positions


class TermScales(NamedTuple):
    """What the prior of one random term is scaled to.

    Attributes:
        names: Of its effects.
        group: The name of its factor.
        Z: Its columns.
        products: What they are products of.
        correlated: Whether its effects may be correlated.
    """

    names: tuple[str, ...]
    group: str
    Z: np.ndarray
    products: Products
    correlated: bool

    @property
    def num_omega(self) -> int:
        """How many numbers its covariance has."""
        return len(omega_positions(len(self.names), self.correlated))


def choose_several(
    prior: Any, family: Family, data: PriorData, names: tuple[str, ...], terms: tuple[TermScales, ...]
) -> Prior:
    """Return the prior of (beta', dispersion, omega of every term); arguments as for `choose_prior`."""
    p, count = data.X.shape[1], family.num_extras
    starts = p + count + np.cumsum([0, *(term.num_omega for term in terms)])
    if isinstance(prior, Prior):
        return same_prior(prior, names, int(starts[-1]))
    sds = [sd_names(len(term.names), term.names, term.group) for term in terms]
    correlated = any(term.correlated and len(term.names) > 1 for term in terms)
    everything = scale_names_of(family, names, tuple(name for own in sds for name in own), correlated)
    settings = read_settings(prior, names, everything)
    mean, sd = np.zeros(starts[-1]), np.full(starts[-1], np.inf)
    if settings.base == "paper":
        words = f"{PAPER} on every fixed effect and on every ω{' and the log dispersion' if count else ''} (paper)"
        return Prior(mean, np.full(starts[-1], PAPER_WIDTH), words, names=names)
    columns = data.standard or standard_columns(data.X, data.fixed or plain_products(p), data.weights)
    response = data.response or response_scale(family, data.y, data.offset, data.weights, columns.has_constant)
    fixed = default_fixed(columns, response, settings, names)
    mean[:p], sd[:p] = fixed.mean, fixed.sd
    found, placed, first = [], ScalePriors(), 0
    for term, own, start in zip(terms, sds, starts[:-1], strict=True):
        asked = {k - first: density for k, density in settings.scales.sds.items() if first <= k < first + len(own)}
        scales = default_scales(
            settings.scales._replace(sds=asked),
            family,
            data._replace(Z=term.Z, random=term.products),
            everything._replace(sds=own, correlated=term.correlated),
            response,
        )
        found.append(scales)
        # the dispersions are placed once, where they stand after the coefficients
        alone = scales if not first else scales._replace(dispersions=(), powers=())
        at = place_scales(alone, everything._replace(sds=own, correlated=term.correlated), mean, sd, int(start))
        placed = ScalePriors(placed.placed + at.placed, placed.covariances + at.covariances)
        first += len(own)
    words = default_words(names, fixed, _together(found), everything, family)
    if settings.every is not None:
        words = f"{normal_words(0.0, settings.every)} on every fixed effect{words and '; '}{words}"
    maps = [scales.map for scales in found]
    random = None if all(own is None for own in maps) else block_diagonal(maps, [len(own) for own in sds])
    return Prior(mean, sd, words, placed, Coordinates(fixed.map, random), names, response.note)


def _together(found: list[ScaleDefaults]) -> ScaleDefaults:
    """Return the densities of all terms, for the words."""
    return found[0]._replace(
        densities=tuple(density for scales in found for density in scales.densities),
        user=tuple(density for scales in found for density in scales.user),
        centred=any(scales.centred for scales in found),
    )
