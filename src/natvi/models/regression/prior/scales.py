"""Priors of sds, correlations and the dispersion, put where the target holds them."""

from typing import NamedTuple

import numpy as np

from natvi.models.regression.prior.default import ScaleDefaults
from natvi.models.regression.prior.scale_settings import ScaleNames
from natvi.target.mixed.random_effects import omega_positions
from natvi.target.priors.scale_density import ScaleDensity


class PlacedScale(NamedTuple):
    """The density of x = exp(power theta) for one shared coordinate theta."""

    position: int
    power: float
    density: ScaleDensity


class CovariancePrior(NamedTuple):
    """Densities of correlated random effects' sds, and LKJ's eta; omega starts at the shared coordinate `start`."""

    start: int
    densities: tuple[ScaleDensity, ...]
    eta: float


class ScalePriors(NamedTuple):
    """The priors that are not normals of a shared coordinate; `covariances` has one for each term with correlations."""

    placed: tuple[PlacedScale, ...] = ()
    covariances: tuple[CovariancePrior, ...] = ()

    @property
    def covariance(self) -> CovariancePrior | None:
        """The first of the covariances' priors, the only one in a model of one term; None where there is none."""
        return self.covariances[0] if self.covariances else None


def place_scales(scales: ScaleDefaults, names: ScaleNames, mean: np.ndarray, sd: np.ndarray, start: int) -> ScalePriors:
    """Put the densities where the shared coordinates are that they belong to.

    A lognormal is a normal of its coordinate and becomes one; the normals of all other coordinates stay switched off by
    their infinite sd, with a mean that is fit to start from.

    Args:
        scales: The densities.
        names: Of the sds and the dispersion.
        mean: The normals' means for (beta', dispersion, omega), changed in place.
        sd: The normals' sds, changed in place.
        start: Where omega starts; the dispersions stand before it.

    Returns:
        The priors that are not normals.
    """
    placed: list[PlacedScale | None] = []
    first = start - len(scales.dispersions)
    for at, (density, power) in enumerate(zip(scales.dispersions, scales.powers, strict=True), first):
        placed.append(_put(density, at, power, mean, sd))
    covariances: tuple[CovariancePrior, ...] = ()
    r = len(scales.densities)
    if names.has_correlations:
        covariances = (CovariancePrior(start, scales.densities, scales.eta),)
    else:
        positions = omega_positions(r, names.correlated)
        placed += [_put(scales.densities[k], start + positions[k, k], -1.0, mean, sd) for k in range(r)]
    return ScalePriors(tuple(found for found in placed if found is not None), covariances)


def _put(density: ScaleDensity, at: int, power: float, mean: np.ndarray, sd: np.ndarray) -> PlacedScale | None:
    if density.name == "lognormal":
        mean[at], sd[at] = density.parameters[0] / power, density.parameters[1] / abs(power)
        return None
    mean[at] = np.log(density.median) / power
    return PlacedScale(at, power, density)
