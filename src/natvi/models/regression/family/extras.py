"""What people read of the numbers that all rows share beside the predictor: from their coordinates, and their prior."""

import numpy as np
from jaxtyping import Float

from natvi.families.family import Extra
from natvi.models.regression.tables import lognormal_row
from natvi.special import expit, ndtri
from natvi.target.priors.scale_density import ScaleDensity

LOGIT_PRIOR = (0.0, 1.5)  # of a probability: close to uniform
HALF_T = 3.0  # degrees of freedom
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)


def natural(extra: Extra, values: np.ndarray) -> np.ndarray:
    """Return the number itself from its coordinate.

    Example:
        >>> natural(Extra("zero", "logit"), np.zeros(1)).tolist()
        [0.5]
    """
    with np.errstate(over="ignore"):
        return expit(values) if extra.scale == "logit" else np.exp(values)


def shown(extras: tuple[Extra, ...], values: Float[np.ndarray, "s q"]) -> Float[np.ndarray, "s q"]:
    """Return draws of what tables show from draws of the coordinates."""
    columns = [
        natural(extra, (1.0 if extra.scale == "logit" else extra.power) * values[:, k])
        for k, extra in enumerate(extras)
    ]
    return np.stack(columns, axis=1) if columns else values[:, :0]


def shown_row(extra: Extra, m: float, v: float, tail: float) -> tuple[float, float, float, float]:
    """Return mean, sd and quantiles of what tables show, its coordinate being N(m, v)."""
    if extra.scale == "log":
        return lognormal_row(extra.power * m, extra.power**2 * v, tail)
    values, weights = expit(m + np.sqrt(v) * NODES), WEIGHTS / WEIGHTS.sum()
    mean = float(weights @ values)
    z = ndtri(1 - tail) * np.sqrt(v)
    return mean, float(np.sqrt(weights @ (values - mean) ** 2)), float(expit(m - z)), float(expit(m + z))


def default_density(extra: Extra, scale: float) -> ScaleDensity:
    """Return the default prior of x to its power, or of the odds of a probability.

    Args:
        extra: The number.
        scale: Of the half-t of a plain positive number, which has the unit of the response or none.
    """
    if extra.scale == "logit":
        return ScaleDensity("lognormal", LOGIT_PRIOR if extra.prior is None else extra.prior[1])  # type: ignore[arg-type]
    if extra.prior is not None:
        return ScaleDensity(*extra.prior)
    return ScaleDensity("half_t", (HALF_T, scale if extra.power == 1.0 else 1.0))
