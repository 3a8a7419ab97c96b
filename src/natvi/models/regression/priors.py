"""Priors on the shared coordinates: independent normals unless the user sets others, stated in words.

The paper's prior is N(0, 10^2) on every shared coordinate: the fixed effects, and omega, the logarithms of the
diagonal and the entries below the diagonal of the Cholesky factor W of the random effects' precision. For gaussian
and gamma responses the default is that prior for data of unit scale, carried back to the user's scale: an intercept
of 251 under N(0, 10^2) would be a trap. Sds, correlations and the dispersion can have priors of their own.
"""

from typing import Any, NamedTuple

import numpy as np

from natvi.families.table import find_family
from natvi.models.mixed.variance import dispersion_name
from natvi.models.regression.prior_settings import PriorSettings, describe_single, normal_words, read_settings
from natvi.models.regression.scale_priors import ScalePriors, implied_words, place_scales
from natvi.models.regression.scale_settings import ScaleNames
from natvi.target.random_effects import omega_positions

WIDTH = 10.0


class Prior(NamedTuple):
    """Mean and sd of every shared coordinate, a sentence for the summary, and the priors that are not normals.

    The sd is infinite where `scales` holds the coordinate's prior.
    """

    mean: np.ndarray
    sd: np.ndarray
    description: str
    scales: ScalePriors = ScalePriors()


class _Base(NamedTuple):
    """A prior whose words for the coefficients stand apart from those for the rest, which may be empty."""

    mean: np.ndarray
    sd: np.ndarray
    coefficients: str
    rest: str
    whole: str


def choose_prior(
    prior: Any,
    family: str,
    y: np.ndarray,
    X: np.ndarray,
    Z: np.ndarray,
    has_dispersion: bool,
    *,
    names: tuple[str, ...] | None = None,
    weights: np.ndarray | None = None,
    correlated: bool = True,
    random_names: tuple[str, ...] | None = None,
    group: str | None = None,
) -> Prior:
    """Return the prior for (beta, dispersion, omega).

    Args:
        prior: "default"; "paper"; a number, the sd of every coefficient around zero; or a dict from names of
            coefficients to an sd (around zero) or a pair (mean, sd), from "sd", single sds, "corr" and the dispersion
            to a density (`scale_settings`); what it does not name keeps the default.
        family: The name of the family.
        y: The response.
        X: The fixed-effects design `(N, p)`.
        Z: The random-effects design `(N, r)`; r = 0 without random effects, and then there is no omega.
        has_dispersion: Whether a dispersion parameter follows the coefficients, on the log scale.
        names: Names of the coefficients, for a dict.
        weights: How often each row counts, for means and sds of the data.
        correlated: Whether omega has the r(r+1)/2 entries of W, or only the r of its diagonal.
        random_names: Names of the random effects.
        group: The name of the grouping column.

    Returns:
        The prior, on the user's scale.
    """
    p, r = X.shape[1], Z.shape[1]
    scale_names = ScaleNames(
        _sd_names(r, random_names, group), dispersion_name(find_family(family), names or ()), correlated
    )
    settings = read_settings(prior, names, scale_names)
    omega = omega_positions(r, correlated)
    if settings.base == "paper" or family not in ("gaussian", "gamma"):
        base = _paper(family, p, len(omega), has_dispersion)
    else:
        base = _scaled(family, y, X, Z, weights, omega, has_dispersion)
    mean, sd, start = base.mean, base.sd, p + int(has_dispersion)
    _refuse_density_without_groups(settings, r)
    scales = place_scales(settings.scales, scale_names, mean, sd, start)
    implied = implied_words(scale_names, mean, sd, start) if r and not scales.words else ""
    rest = scales.words or base.rest
    if settings.every is not None:
        mean[:p], sd[:p] = 0.0, settings.every
        words = ", ".join(filter(None, (f"{normal_words(0.0, settings.every)} on every {_noun(r)}", rest)))
    elif settings.single and names is not None:
        for name, (centre, width) in settings.single.items():
            mean[names.index(name)], sd[names.index(name)] = centre, width
        others = [f"other {_noun(r)}s {base.coefficients}"] if len(settings.single) < p else []
        words = "; ".join(filter(None, [describe_single(settings.single), *others, rest]))
    elif scales.words:
        words = "; ".join([f"{_noun(r)}s {base.coefficients}", rest]) if p else rest
    else:
        words = base.whole
    return Prior(mean, sd, "; ".join(filter(None, (words, implied))), scales)


def _sd_names(r: int, random_names: tuple[str, ...] | None, group: str | None) -> tuple[str, ...]:
    """Return the names under which the sds are reported."""
    if random_names is None or group is None:
        return tuple(f"sd of random effect {k + 1}" for k in range(r)) if r > 1 else ("sd of the random effect",) * r
    return tuple(f"sd({effect}|{group})" for effect in random_names)


def _refuse_density_without_groups(settings: PriorSettings, r: int) -> None:
    density = settings.scales.dispersion
    if r == 0 and density is not None and density.name != "lognormal":
        raise ValueError(
            f"not yet supported: a prior {density.words} for the dispersion of a model without groups; it can be "
            "('lognormal', mu, sd), e.g. ('lognormal', 0, 1): the log dispersion is then N(mu, sd²)."
        )


def _noun(r: int) -> str:
    return "fixed effect" if r else "coefficient"


def _paper(family: str, p: int, num_omega: int, has_dispersion: bool) -> _Base:
    size = p + int(has_dispersion) + num_omega
    scale = ["log sigma" if family == "gaussian" else "the log dispersion"] if has_dispersion else []
    rest = " and ".join([*scale, *(["ω"] if num_omega else [])])
    normal = normal_words(0.0, WIDTH)
    whole = f"{normal} on every {_noun(num_omega)}" + (f" and on {rest}" if rest else "") + " (paper)"
    return _Base(np.zeros(size), np.full(size, WIDTH), normal, f"{normal} on {rest}" if rest else "", whole)


def _scaled(
    family: str,
    y: np.ndarray,
    X: np.ndarray,
    Z: np.ndarray,
    weights: np.ndarray | None,
    omega: dict[tuple[int, int], int],
    has_dispersion: bool,
) -> _Base:
    """Return the paper's prior for standardised data.

    With s the scale of the predictor,

        intercept N(centre, (10 s)^2), slopes N(0, (10 s / sd(x))^2), log W_kk N(log(sd(z_k) / s), 10^2).

    For gaussian responses centre = mean(y) and s = sd(y); for gamma responses, whose link is the logarithm,
    centre = log mean(y) and s = 1.
    """
    p, gaussian = X.shape[1], family == "gaussian"
    average = float(np.average(y, weights=weights))
    centre = average if gaussian else float(np.log(average))
    scale = float(_spread(y[:, None], weights)[0]) if gaussian else 1.0
    start = p + int(has_dispersion)
    mean, sd = np.zeros(start + len(omega)), np.full(start + len(omega), WIDTH)
    spread = _spread(X, weights)
    intercept = np.flatnonzero((spread == 0) & np.any(X != 0, axis=0))[:1]
    mean[intercept] = centre / X[0, intercept]
    sd[:p] = WIDTH * scale / np.where(spread == 0, 1.0, spread)
    if has_dispersion:
        mean[p] = np.log(scale)
    z_spread = _spread(Z, weights)
    z_scale = np.where(z_spread == 0, 1.0, z_spread)
    for (row, column), position in omega.items():
        at = start + position
        if row == column:
            mean[at] = np.log(z_scale[row] / scale)  # log W_kk is minus a log sd
        else:
            sd[at] = WIDTH * z_scale[row] / scale
    first = [f"intercept N({centre:.4g}, {WIDTH * scale:.4g}²)"] if len(intercept) else []
    slopes = f"slopes N(0, ({'10 sd(y)' if gaussian else '10'}/sd(x))²)"
    coefficients = "scaled to the data: " + ", ".join([*first, slopes])
    rest = _rest_words(gaussian, has_dispersion, bool(omega))
    return _Base(mean, sd, coefficients, rest, ", ".join(filter(None, (coefficients, rest))))


def _rest_words(gaussian: bool, has_dispersion: bool, random: bool) -> str:
    if gaussian:
        return f"{'log sds' if random else 'log sigma'} N(log sd(y), 10²)"
    words = ["log dispersion N(0, 10²)"] if has_dispersion else []
    return ", ".join([*words, *(["log sds N(0, 10²) per sd(z)"] if random else [])])


def _spread(columns: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return the sd of each column, exactly zero for constant ones."""
    if len(columns) == 0:
        return np.zeros(columns.shape[1])
    constant = np.all(columns == columns[0], axis=0)
    if weights is None:
        return np.where(constant, 0.0, np.std(columns, axis=0))
    centred = columns - np.average(columns, axis=0, weights=weights)
    return np.where(constant, 0.0, np.sqrt(np.average(centred**2, axis=0, weights=weights)))
