"""Priors in words, in the user's units."""

from collections.abc import Sequence

import numpy as np

from natvi.families.family import Extra
from natvi.families.table import Family
from natvi.models.regression.prior.default import FixedPrior, ScaleDefaults
from natvi.models.regression.prior.scale_settings import ScaleNames
from natvi.models.regression.prior.settings import normal_words
from natvi.models.regression.prior.standard import CELL, INTERCEPT
from natvi.quadrature.fixed_points import fixed_points
from natvi.special import ndtri
from natvi.target.mixed.random_effects import omega_positions
from natvi.target.priors.scale_density import ScaleDensity

SHOWN = 6
NUM_POINTS = 1 << 15
PROB = 0.95
PAPER = normal_words(0.0, 10.0)

WEAKLY = "weakly informative, scaled to the data"  # how the words for the default begin


def default_words(
    names: Sequence[str], fixed: FixedPrior, scales: ScaleDefaults, scale_names: ScaleNames, family: Family
) -> str:
    """Return the default prior, and what the user has set in it, as it holds in the user's units."""
    words = []
    if not all(fixed.set_by_user):
        words = [f"{WEAKLY}: " + _coefficients(names, fixed)]
    elif fixed.map is None and len(set(map(tuple, fixed.user.T))) > 1:
        words = [_listed([f"{name} {normal_words(*fixed.user[:, at])}" for at, name in enumerate(names)])]
    words += _sds(scale_names, scales)
    together: dict[str, list[str]] = {}
    own = zip(family.extras, scale_names.dispersions, scales.dispersions, scales.powers, strict=True)
    for extra, name, density, power in own:
        together.setdefault(_extra(extra, density), []).append(_shown(extra, name, power))
    return "; ".join([*words, *(f"{_few(found)} {density}" for density, found in together.items())])


def _shown(extra: Extra, name: str, power: float) -> str:
    return f"logit({name})" if extra.scale == "logit" else extra._replace(name=name, power=power).shown


def _extra(extra: Extra, density: ScaleDensity) -> str:
    return normal_words(*density.parameters) if extra.scale == "logit" else _density(density)


def _coefficients(names: Sequence[str], fixed: FixedPrior) -> str:
    each = [normal_words(*fixed.user[:, at]) for at in range(len(names))]
    listed = []
    cells = [at for at, role in enumerate(fixed.roles) if role == CELL and not fixed.set_by_user[at]]
    if cells:
        listed.append(f"each of {_few([names[at] for at in cells])} {each[cells[0]]}")
    for at, name in enumerate(names):
        if at in cells:
            continue
        average = fixed.roles[at] == INTERCEPT and fixed.centred and not fixed.set_by_user[at]
        listed.append(f"{name} {each[at]}{' at average covariates' if average else ''}")
    return _listed(listed)


def _sds(names: ScaleNames, scales: ScaleDefaults) -> list[str]:
    together: dict[str, list[str]] = {}
    for name, density in zip(names.sds, scales.user, strict=True):
        together.setdefault(_density(density), []).append(name)
    words = [f"{', '.join(found)} {density}" for density, found in together.items()]
    if words and scales.centred:
        words[0] += " (at average covariates)"
    return [*words, f"corr LKJ({scales.eta:.4g})"] if names.has_correlations else words


def _density(density: ScaleDensity) -> str:
    low, high = density.interval(PROB)
    if density.name in ("lognormal", "gamma"):
        return f"{density.words}, {100 * PROB:.0f}% of it between {tidy(low)} and {tidy(high)}"
    return f"{density.words}, {100 * PROB:.0f}% of it below {tidy(density.quantile(PROB))}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f", ... ({len(names)} in all)" if len(names) > 3 else "")


def _listed(words: Sequence[str]) -> str:
    more = f", ... ({len(words)} in all)" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + more


# --- the paper's prior -----------------------------------------------------------------------------------------


def paper_words(names: ScaleNames, mean: np.ndarray, sd: np.ndarray, family: Family, p: int) -> str:
    """Return the paper's prior, N(0, 10^2) on every shared coordinate, and what it means for the sds."""
    scale = ["log sigma" if family.name == "gaussian" else _own(family)] if family.has_dispersion else []
    rest = " and ".join([*scale, *(["ω"] if names.sds else [])])
    noun = "fixed effect" if names.sds else "coefficient"
    words = f"{PAPER} on every {noun}" + (f" and on {rest}" if rest else "") + " (paper)"
    start = p + family.num_extras
    return "; ".join(filter(None, (words, implied_words(names, mean[start:], sd[start:]))))


def _own(family: Family) -> str:
    return "the log dispersion" if family.num_extras == 1 else ", ".join(extra.coordinate for extra in family.extras)


def implied_words(names: ScaleNames, mean: np.ndarray, sd: np.ndarray) -> str:
    """Say what normals on omega imply for the sds.

    Example:
        >>> implied_words(ScaleNames(("sd(Intercept|g)",)), np.zeros(1), np.full(1, 10.0))
        'sd(Intercept|g): 95% of the prior between 3e-9 and 3e8'
    """
    together: dict[tuple[str, str], list[str]] = {}
    intervals = implied_intervals(len(names.sds), names.correlated, mean, sd)
    for name, (low, high) in zip(names.sds, intervals, strict=True):
        together.setdefault((tidy(low), tidy(high)), []).append(name)
    return "; ".join(
        f"{', '.join(found)}: {100 * PROB:.0f}% of the prior between {low} and {high}"
        for (low, high), found in together.items()
    )


def implied_intervals(r: int, correlated: bool, mean: np.ndarray, sd: np.ndarray) -> list[tuple[float, float]]:
    """Return the central 95% interval of each sd under independent normals on omega.

    A lone sd is lognormal. Correlated ones are not: s_k is the length of the k-th column of W^-1, and its quantiles
    come from evenly spread points of omega.
    """
    z = float(ndtri(0.5 + PROB / 2))
    positions = omega_positions(r, correlated)
    if r <= 1 or not correlated:
        at = [positions[k, k] for k in range(r)]
        return [(float(np.exp(-mean[k] - z * sd[k])), float(np.exp(-mean[k] + z * sd[k]))) for k in at]
    log_s = _log_sds(r, mean[:, None] + sd[:, None] * fixed_points(len(mean), NUM_POINTS))
    low, high = np.exp(np.quantile(log_s, [0.5 - PROB / 2, 0.5 + PROB / 2], axis=1))
    return list(zip(low.tolist(), high.tolist(), strict=True))


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


def tidy(x: float) -> str:
    """Write a number with two digits, or one and a power of ten.

    Example:
        >>> tidy(3.26e8), tidy(0.0628), tidy(4.48)
        ('3e8', '0.063', '4.5')
    """
    if 1e-3 <= x < 1e4:
        return f"{float(f'{x:.2g}'):g}"
    mantissa, power = f"{x:.0e}".split("e")
    return f"{mantissa}e{int(power)}"
