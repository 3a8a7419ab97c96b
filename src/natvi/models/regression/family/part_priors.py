"""The default prior of a model with parts: every predictor has one by the same rules, scaled to its own columns.

With s = 0.6 for the logit of `zero` the intercept has N(0, 1.5^2), what a number that all rows share has too, slopes
N(0, (1.5 / d)^2). With s = 0.4 / |k| for the logarithm of a dispersion x, of which tables show x^k, the intercept has
N(c, (1 / k)^2) and slopes N(0, (1 / (d k))^2), c being the logarithm of the response's spread where x has its unit,
else 0. Sds of random effects have half-t(3, 2.5 s / d).
"""

from typing import NamedTuple

import numpy as np

from natvi.families.family import Extra, Family
from natvi.families.parts import part_slices, without_parts
from natvi.formula.margins import Products, plain_products
from natvi.models.regression.coordinates import block_diagonal
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.prior.default import FixedPrior, ScaleDefaults, default_fixed, default_scales
from natvi.models.regression.prior.response_scale import ResponseScale, response_scale
from natvi.models.regression.prior.scale_settings import ScaleNames
from natvi.models.regression.prior.settings import PriorSettings
from natvi.models.regression.prior.standard import standard_columns

ZERO_SPREAD, DISPERSION_SPREAD = 0.6, 0.4


class Defaults(NamedTuple):
    """The default prior of coefficients, sds and what else there is, and a note where something had to be chosen."""

    fixed: FixedPrior
    scales: ScaleDefaults
    note: str


def part_defaults(
    settings: PriorSettings, family: Family, data: PriorData, names: tuple[str, ...], scale_names: ScaleNames
) -> Defaults:
    """Return the default prior with what the user has set in its place, predictor after predictor."""
    p, r = data.X.shape[1], data.Z.shape[1]
    slices, plain = part_slices(family, p, r), without_parts(family)
    fixed, scales, note, main = [], [], "", None
    for at, (columns, effects) in enumerate(slices):
        X, own = data.X[:, columns], _some(data.fixed, p, columns)
        standard = standard_columns(X, own, data.weights)
        if main is None:
            main = response_scale(plain, data.y, data.offset, data.weights, standard.has_constant)
            response, note = main, main.note
        else:
            response = part_scale(family.parts[at - 1].extra, main, family)
        fixed.append(default_fixed(standard, response, settings, names[columns]))
        first = effects.start
        asked = {k - first: density for k, density in settings.scales.sds.items() if first <= k < effects.stop}
        part = data._replace(X=X, Z=data.Z[:, effects], random=_some(data.random, r, effects))
        sds = scale_names._replace(sds=scale_names.sds[effects])
        scales.append(default_scales(settings.scales._replace(sds=asked), family, part, sds, response))
    return Defaults(_join_fixed(fixed), _join_scales(scales), note)


def part_scale(extra: Extra, main: ResponseScale, family: Family) -> ResponseScale:
    """Return where the predictor of a number beside the mean lies, and how far it spreads."""
    if extra.scale == "logit":
        return ResponseScale(0.0, ZERO_SPREAD)
    has_unit = extra.power == 1.0 and (family.link == "identity" or family.quadratic or main.unit is not None)
    unit = main.spread if main.unit is None else main.unit
    return ResponseScale(float(np.log(unit)) if has_unit else 0.0, DISPERSION_SPREAD / abs(extra.power))


def _some(products: Products | None, count: int, at: slice) -> Products:
    found = plain_products(count) if products is None else products
    return found._replace(keys=found.keys[at])


def _join_fixed(parts: list[FixedPrior]) -> FixedPrior:
    maps = [part.map for part in parts]
    return FixedPrior(
        np.concatenate([part.mean for part in parts]),
        np.concatenate([part.sd for part in parts]),
        None if all(own is None for own in maps) else block_diagonal(maps, [len(part.mean) for part in parts]),
        np.concatenate([part.user for part in parts], axis=1),
        tuple(role for part in parts for role in part.roles),
        tuple(given for part in parts for given in part.set_by_user),
        any(part.centred for part in parts),
    )


def _join_scales(parts: list[ScaleDefaults]) -> ScaleDefaults:
    maps = [part.map for part in parts]
    return parts[0]._replace(
        densities=tuple(density for part in parts for density in part.densities),
        user=tuple(density for part in parts for density in part.user),
        map=None if all(own is None for own in maps) else block_diagonal(maps, [len(part.user) for part in parts]),
        centred=any(part.centred for part in parts),
    )
