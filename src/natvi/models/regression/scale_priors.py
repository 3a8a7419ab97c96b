"""Priors of sds, correlations and the dispersion: put in the place of the default's normals, and into words.

The default is a normal on omega, whose diagonal holds minus the logarithms of the sds (for correlated effects, of
conditional sds), and on the log dispersion. What that means for an sd is shown as an interval.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from natvi.models.regression.scale_settings import ScaleNames, ScaleSettings
from natvi.target.random_effects import omega_positions
from natvi.target.scale_density import ScaleDensity

Intervals = Mapping[str, tuple[float, float]]
NUM_POINTS = 1 << 14
PROB = 0.95


class PlacedScale(NamedTuple):
    """The density of x = exp(sign theta) for one shared coordinate theta."""

    position: int
    sign: int
    density: ScaleDensity


class CovariancePrior(NamedTuple):
    """Densities of correlated random effects' sds, and LKJ's eta; omega starts at the shared coordinate `start`."""

    start: int
    densities: tuple[ScaleDensity, ...]
    eta: float


class ScalePriors(NamedTuple):
    """The priors that are not normals of a shared coordinate; the words tell all of the scales' priors."""

    placed: tuple[PlacedScale, ...] = ()
    covariance: CovariancePrior | None = None
    words: str = ""


def place_scales(
    settings: ScaleSettings, names: ScaleNames, mean: np.ndarray, sd: np.ndarray, start: int
) -> ScalePriors:
    """Replace the default's normals, in place, by what the user asked for.

    Where the density is not a normal of the coordinate, the normal's sd becomes infinite, which switches it off.

    Args:
        settings: The densities asked for.
        names: Of the sds and the dispersion.
        mean: The normals' means for (beta, dispersion, omega).
        sd: The normals' sds.
        start: Where omega starts.

    Returns:
        The other priors, and words for all of them; empty where nothing was asked for.
    """
    if not settings:
        return ScalePriors()
    r, dispersion = len(names.sds), settings.dispersion
    at = [start + k for k in _diagonal(r, names.correlated)]
    default = [ScaleDensity("lognormal", (0.0 - float(mean[k]), float(sd[k]))) for k in at]
    densities = tuple(settings.sds.get(k, default[k]) for k in range(r))
    placed, covariance, words = [], None, []
    if names.has_correlations and (settings.sds or settings.lkj is not None):
        covariance = CovariancePrior(start, densities, settings.lkj or 1.0)
        mean[start:], sd[start:] = 0.0, np.inf
        words = [*_interval_words(names, densities), f"corr LKJ({covariance.eta:.4g})"]
    elif settings.sds:
        placed += [found for k in range(r) if (found := _put(densities[k], at[k], -1, mean, sd))]
        words = _interval_words(names, densities)
    elif r:  # the default stands
        words = ["ω as by default", *_default_words(names, mean, sd, start)]
    if names.dispersion is not None:
        if dispersion is None:
            dispersion = ScaleDensity("lognormal", (float(mean[start - 1]), float(sd[start - 1])))
        if found := _put(dispersion, start - 1, 1, mean, sd):
            placed.append(found)
        words.append(f"{names.dispersion} {dispersion.words}")
    return ScalePriors(tuple(placed), covariance, "; ".join(words))


def _put(density: ScaleDensity, at: int, sign: int, mean: np.ndarray, sd: np.ndarray) -> PlacedScale | None:
    """Write a lognormal as the normal of its coordinate; switch the normal off for any other density."""
    if density.name == "lognormal":
        mean[at], sd[at] = sign * density.parameters[0], density.parameters[1]
        return None
    mean[at], sd[at] = 0.0, np.inf
    return PlacedScale(at, sign, density)


def _diagonal(r: int, correlated: bool) -> list[int]:
    positions = omega_positions(r, correlated)
    return [positions[k, k] for k in range(r)]


# --- words -----------------------------------------------------------------------------------------------------


def implied_words(names: ScaleNames, mean: np.ndarray, sd: np.ndarray, start: int) -> str:
    """Say what the default's normals on omega imply for the sds.

    Example:
        >>> implied_words(ScaleNames(("sd(Intercept|g)",)), np.zeros(1), np.full(1, 10.0), 0)
        'sd(Intercept|g): 95% of the prior between 3e-9 and 3e8'
    """
    return "; ".join(_default_words(names, mean, sd, start))


def _default_words(names: ScaleNames, mean: np.ndarray, sd: np.ndarray, start: int) -> list[str]:
    intervals = implied_intervals(len(names.sds), names.correlated, mean[start:], sd[start:])
    together: dict[tuple[str, str], list[str]] = {}
    for name, (low, high) in zip(names.sds, intervals, strict=True):
        together.setdefault((_tidy(low), _tidy(high)), []).append(name)
    return [
        f"{', '.join(found)}: {100 * PROB:.0f}% of the prior between {low} and {high}"
        for (low, high), found in together.items()
    ]


def _interval_words(names: ScaleNames, densities: tuple[ScaleDensity, ...]) -> list[str]:
    words = []
    for name, density in zip(names.sds, densities, strict=True):
        low, high = map(_tidy, density.interval(PROB))
        words.append(f"{name} {density.words}, {100 * PROB:.0f}% of the prior between {low} and {high}")
    return words


def implied_intervals(r: int, correlated: bool, mean: np.ndarray, sd: np.ndarray) -> list[tuple[float, float]]:
    """Return the central 95% interval of each sd under independent normals on omega.

    A lone sd is lognormal. Correlated ones are not: s_k is the length of the k-th column of W^-1, and its quantiles
    come from evenly spread points of omega.
    """
    z = float(ndtri(0.5 + PROB / 2))
    if r == 1 or not correlated:
        at = _diagonal(r, correlated)
        return [(float(np.exp(-mean[k] - z * sd[k])), float(np.exp(-mean[k] + z * sd[k]))) for k in at]
    log_s = _log_sds(r, mean[:, None] + sd[:, None] * ndtri(_spread_points(len(mean))))
    low, high = np.exp(np.quantile(log_s, [0.5 - PROB / 2, 0.5 + PROB / 2], axis=1))
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _spread_points(d: int) -> np.ndarray:
    """Return points `(d, n)` that fill the unit cube evenly: multiples of powers of the root of x^(d+1) = x + 1."""
    root = 2.0
    for _ in range(60):
        root = (1.0 + root) ** (1.0 / (d + 1))
    steps = root ** -np.arange(1.0, d + 1)
    return np.clip((0.5 + np.outer(steps, np.arange(1, NUM_POINTS + 1))) % 1.0, 1e-12, 1 - 1e-12)


def _log_sds(r: int, omega: np.ndarray) -> np.ndarray:
    """Return log s_k: with y_k = 1 and W y = e_k W_kk below, s_k = |y| / W_kk; in logarithms, since omega is wide."""
    at = omega_positions(r)
    found = []
    for k in range(r):
        size = {k: np.zeros(omega.shape[1])}
        sign = {k: np.ones(omega.shape[1])}
        for row in range(k + 1, r):
            logs = np.stack([np.log(np.abs(omega[at[row, m]])) + size[m] for m in range(k, row)])
            signs = np.stack([np.sign(omega[at[row, m]]) * sign[m] for m in range(k, row)])
            top = logs.max(axis=0)
            inner = np.sum(signs * np.exp(logs - top), axis=0)
            sign[row] = -np.sign(inner)
            size[row] = np.log(np.maximum(np.abs(inner), 1e-300)) + top - omega[at[row, row]]
        found.append(0.5 * np.logaddexp.reduce([2 * s for s in size.values()], axis=0) - omega[at[k, k]])
    return np.stack(found)


def _tidy(x: float) -> str:
    """Write a number with two digits, or one and a power of ten.

    Example:
        >>> _tidy(3.26e8), _tidy(0.0628), _tidy(4.48)
        ('3e8', '0.063', '4.5')
    """
    if 1e-3 <= x < 1e4:
        return f"{float(f'{x:.2g}'):g}"
    mantissa, power = f"{x:.0e}".split("e")
    return f"{mantissa}e{int(power)}"
