"""Priors in files: normals and coordinates as arrays, densities as JSON."""

from typing import Any

import numpy as np

from natvi.models.regression.coordinates import Coordinates
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.scale_settings import read_density
from natvi.models.regression.prior.scales import CovariancePrior, PlacedScale, ScalePriors
from natvi.target.priors.scale_density import ScaleDensity


def prior_arrays(prior: Prior) -> dict[str, np.ndarray]:
    """Return the arrays of a prior by the names under which a file holds them."""
    return {"prior_mean": prior.mean, "prior_sd": prior.sd, **prior.coordinates.store()}


def store_prior(prior: Prior) -> dict[str, Any]:
    """Return the rest as JSON values."""
    together = [
        {"start": found.start, "eta": found.eta, "sds": [_plain(d) for d in found.densities]}
        for found in prior.scales.covariances
    ]
    return {
        "description": prior.description,
        "note": prior.note,
        "placed": [[found.position, found.power, *_plain(found.density)] for found in prior.scales.placed],
        "covariance": together,
    }


def restore_prior(arrays: dict[str, np.ndarray], document: Any, names: tuple[str, ...], r: int) -> Prior:
    """Rebuild a prior; files of before hold its description alone, or that with its normals.

    Raises:
        ValueError: For what is not a prior.
    """
    coordinates = Coordinates.restore(arrays, len(names), r)
    mean, sd = (arrays.get(name, np.zeros(0)) for name in ("prior_mean", "prior_sd"))
    if mean.shape != sd.shape or mean.ndim != 1 or np.any(np.isnan(sd)) or not np.all(np.isfinite(mean)):
        raise ValueError("the arrays of the prior do not fit together")
    if isinstance(document, str):
        return Prior(mean, sd, document, coordinates=coordinates, names=names)
    if not isinstance(document, dict):
        raise ValueError(f"the prior must be a description or an object, not {type(document).__name__}")
    placed = tuple(
        PlacedScale(_position(at, len(mean)), _number(power), read_density("a parameter", plain))
        for at, power, *plain in document["placed"]
    )
    stored = document["covariance"]
    # files of before hold the only one, or none
    stored = stored if isinstance(stored, list) else [] if stored is None else [stored]
    covariances = tuple(
        CovariancePrior(
            _position(found["start"], len(mean)),
            tuple(read_density("an sd", plain) for plain in found["sds"]),
            _number(found["eta"]),
        )
        for found in stored
    )
    words, note = document["description"], document["note"]
    if not isinstance(words, str) or not isinstance(note, str):
        raise ValueError("the description of the prior must be text")
    return Prior(mean, sd, words, ScalePriors(placed, covariances), coordinates, names, note)


def _plain(density: ScaleDensity) -> list[Any]:
    return [density.name, *density.parameters]


def _position(value: Any, size: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
        raise ValueError(f"{value!r} is no position among the {size} shared parameters")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value) or value == 0:
        raise ValueError(f"a density has {value!r} where a finite number other than zero belongs")
    return float(value)
