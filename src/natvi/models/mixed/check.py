"""How far a Gaussian fit of a mixed model is from the posterior: integrate the random effects out and look again.

The Gaussian approximation of random effects and shared parameters together can be off in the shared ones. Draws of
theta_g from the fit are weighted by the exact marginal p(y, theta_g), the random effects integrated out; how far that
moves means and sds of fixed effects and variance components, as the user reads them, is how far the fit is off
(`natvi.judge.shape`). Weights over all coordinates would mean nothing: there are thousands of them.
"""

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from natvi.gaussian import ArrowPrecision
from natvi.judge import thresholds, words
from natvi.judge.shape import Shape, look_closer
from natvi.judge.trust import CARE, Trust
from natvi.models.mixed.marginal.density import MarginalDensity
from natvi.models.mixed.variance import component_names
from natvi.models.regression.separation import separated
from natvi.target import SumOfTerms
from natvi.target.mixed.marginal import can_integrate
from natvi.target.mixed.random_effects import omega_positions

if TYPE_CHECKING:
    from natvi.models.mixed.posterior import MixedFit

PROBE = 3.0  # sds away from the mean at which the exact marginal is looked at; the Gaussian falls by 4.5 nats there
LEAST_FALL = 1.5
VAGUE = 1.0  # posterior sd of a log sd from which it is poorly determined
ROW_BUDGET, LEAST_DRAWS, MOST_DRAWS = 2e7, 32, 2048  # rows times draws; the marginal method takes as many


class Look(NamedTuple):
    """What the exact marginal says about the Gaussian of the shared coordinates.

    Attributes:
        shape: Means and sds of fixed effects and variance components, held against the exact ones.
        falls: For each log sd and log dispersion, how far the log marginal falls three sds towards larger and towards
            smaller values, where the Gaussian falls by 4.5.
    """

    shape: Shape | None
    falls: np.ndarray


def check_fit(target: SumOfTerms, posterior: ArrowPrecision, fit: "MixedFit") -> tuple[Trust, ...]:
    """Return what the checks found; `posterior` has its groups in the order of the target."""
    return (*judge_shape(target, posterior, fit), *judge_data(fit))


def judge_shape(target: SumOfTerms, posterior: ArrowPrecision, fit: "MixedFit") -> tuple[Trust, ...]:
    """Return whether the Gaussian of the shared coordinates is close to their exact marginal."""
    if not can_integrate(target):
        return (Trust(CARE, ("the Gaussian shape was not checked: too many random effects per group",)),)
    seen = look_at_marginal(target, posterior, fit)
    if seen is None:
        return (Trust(CARE, (words.NOT_FINITE,)),)
    cure = f"{fit.assumption} does not fit, and method='auto' or 'marginal' goes on from it"
    names = [*fit.fixed_names, *component_names(fit)]
    falls = _judge_falls(seen.falls, [*fit.log_sd_positions(), *fit.dispersion_position()])
    return (words.judge_shape(seen.shape, names, cure), *falls)


def judge_data(fit: "MixedFit") -> tuple[Trust, ...]:
    """Return what the data leave open and a Gaussian may hide."""
    return (*_judge_spread(fit), *judge_separation(fit))


def look_at_marginal(target: SumOfTerms, posterior: ArrowPrecision, fit: "MixedFit") -> Look | None:
    """Weight draws of the fit by the exact marginal, and look at both sides of the log sds; None if not finite."""
    R, centre = np.asarray(posterior.inverse_shared), np.asarray(posterior.mean.shared)
    if not (np.all(np.isfinite(R)) and np.all(np.isfinite(centre))):
        return None
    density = MarginalDensity(target, posterior)
    sds = np.sqrt(np.sum(R**2, axis=0))
    positions = [*fit.log_sd_positions().values(), *fit.dispersion_position().values()]
    # the others follow as they do under q: Sigma e_k / sd_k; omega_kk is minus a log sd
    signs = np.array([-1.0] * len(fit.random_names) + [1.0] * len(fit.dispersion_position()))
    away = signs[:, None] * PROBE * (R.T @ R)[positions] / sds[positions][:, None]
    values = density.values(centre + np.concatenate([np.zeros((1, len(centre))), away, -away]))
    if not np.isfinite(values[0]):
        return None
    falls = (values[0] - values[1:]).reshape(2, -1).T
    most = int(np.clip(ROW_BUDGET / fit.num_rows, LEAST_DRAWS, min(MOST_DRAWS, thresholds.MOST_DRAWS)))
    return Look(look_closer(density.values, centre, R.T, fit.readings, _directions(fit), most), falls)


def _directions(fit: "MixedFit") -> np.ndarray:
    """Return the combination of coordinates with which each fixed effect and variance component moves most."""
    r, omega = len(fit.random_names), omega_positions(len(fit.random_names), fit.correlated)
    pairs = combinations(range(r), 2) if fit.correlated else ()
    at = [
        *range(len(fit.fixed_names)),
        *fit.log_sd_positions().values(),
        *(fit.omega_start + omega[j, k] for k, j in pairs),
        *fit.dispersion_position().values(),
    ]
    found, p = np.eye(len(fit.shared_names()))[at], len(fit.fixed_names)
    found[:p, :p] = fit.coordinates.coefficients(np.eye(p)).T
    return found


def _judge_falls(falls: np.ndarray, names: list[str]) -> tuple[Trust, ...]:
    """A log sd whose exact marginal hardly falls where the Gaussian has ended is not determined as q says.

    Each row of `falls` holds the falls towards larger and towards smaller values.
    """
    wider, narrower = falls.T
    near_zero = [name for name, fall in zip(names, narrower, strict=True) if not fall > LEAST_FALL]
    wide = [name for name, fall in zip(names, wider, strict=True) if not fall > LEAST_FALL and name not in near_zero]
    reasons = []
    if near_zero:
        reasons.append(f"the data do not rule out much smaller values of {', '.join(near_zero)} than the interval says")
    if wide:
        reasons.append(f"the data do not rule out much larger values of {', '.join(wide)} than the interval says")
    return (Trust(CARE, tuple(reasons)),) if reasons else ()


def vague_components(fit: "MixedFit") -> list[str]:
    """Return the sds and dispersions of which the data hardly tell the order of magnitude."""
    _, covariance = fit.shared_moments()
    sds = np.sqrt(np.diag(covariance))
    positions = fit.log_sd_positions() | fit.dispersion_position()
    return [name for name, at in positions.items() if sds[at] > VAGUE]


def _judge_spread(fit: "MixedFit") -> tuple[Trust, ...]:
    vague = vague_components(fit)
    if not vague:
        return ()
    return (Trust(CARE, (f"{', '.join(vague)} is poorly determined by the data: the prior matters for it",)),)


def judge_separation(fit: "MixedFit") -> tuple[Trust, ...]:
    """Columns that separate the responses leave their coefficients to the prior."""
    if fit.rows is None:
        return ()
    found = separated(fit.rows.X, fit.rows.y, fit.fixed_names, fit.family)
    cure = "merge levels, drop columns or set a tighter prior"
    return tuple(Trust(CARE, (f"{reason} (separation); {cure}",)) for reason in found)
