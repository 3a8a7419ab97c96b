"""How far a Gaussian fit of a mixed model is from the posterior: integrate the random effects out and look again.

The Gaussian approximation of random effects and shared parameters together can be off in the shared ones. Draws of
theta_g from the fit are weighted by the exact marginal p(y, theta_g), the random effects integrated out; how far that
moves means and sds is how far the fit is off. Weights over all coordinates would mean nothing: there are thousands of
them. Draws come in antithetic pairs, and sds are compared with those of the same draws: where the weights are equal,
the noise is zero.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from natvi.gaussian import ArrowPrecision
from natvi.metrics.psis import RELIABLE_K, smooth_weights
from natvi.models.mixed.marginal.density import MarginalDensity
from natvi.result.trust import CARE, GOOD, REFUSE, Trust
from natvi.target import LikelihoodRows, NormalPrior, SumOfTerms
from natvi.target.marginal import can_integrate

if TYPE_CHECKING:
    from natvi.models.mixed.posterior import MixedFit

SMALL_SHIFT, LARGE_SHIFT = 0.15, 3.0  # in posterior sds
SMALL_CHANGE = 0.25  # of the logarithm of an sd
PROBE = 3.0  # sds away from the mean at which the exact marginal is looked at; the Gaussian falls by 4.5 nats there
LEAST_FALL = 1.5
VAGUE = 1.0  # posterior sd of a log sd from which it is poorly determined
LOOSE = 0.2  # share of the prior sd from which a coefficient is hardly limited by the data
WIDE = 0.5  # sd on the link scale below which that does not matter
ROW_BUDGET, LEAST_PAIRS, MOST_PAIRS = 3e6, 8, 128  # rows times pairs of draws


class Look(NamedTuple):
    """What the exact marginal says about the Gaussian of the shared coordinates.

    Attributes:
        shift: How far weighting moves each mean, in posterior sds.
        ratio: How many times as large it makes each sd.
        k: The Pareto k of the weights.
        effective: How many of the draws the weighted ones are worth.
        num_draws: The number of draws.
        falls: For each log sd and log dispersion, how far the log marginal falls three sds towards larger and towards
            smaller values, where the Gaussian falls by 4.5.
    """

    shift: np.ndarray
    ratio: np.ndarray
    k: float
    effective: float
    num_draws: int
    falls: np.ndarray


def check_fit(target: SumOfTerms, posterior: ArrowPrecision, fit: "MixedFit") -> tuple[Trust, ...]:
    """Return what the checks found; `posterior` has its groups in the order of the target."""
    return (*judge_shape(target, posterior, fit), *judge_data(target, fit))


def judge_shape(target: SumOfTerms, posterior: ArrowPrecision, fit: "MixedFit") -> tuple[Trust, ...]:
    """Return whether the Gaussian of the shared coordinates is close to their exact marginal."""
    if not can_integrate(target):
        return (Trust(CARE, ("the Gaussian shape was not checked: too many random effects per group",)),)
    seen = look_at_marginal(target, posterior, fit)
    if seen is None:
        return (Trust(CARE, ("the check against the exact marginal did not give a finite answer",)),)
    return (_judge_moments(seen, fit), *_judge_falls(seen.falls, [*fit.log_sd_positions(), *fit.dispersion_position()]))


def judge_data(target: SumOfTerms, fit: "MixedFit") -> tuple[Trust, ...]:
    """Return what the data leave open and a Gaussian may hide."""
    return (*_judge_spread(fit), *judge_coefficients(target, fit))


def look_at_marginal(target: SumOfTerms, posterior: ArrowPrecision, fit: "MixedFit") -> Look | None:
    """Weight draws of the fit by the exact marginal, and look at both sides of the log sds; None if not finite."""
    R, centre = np.asarray(posterior.inverse_shared), np.asarray(posterior.mean.shared)
    if not (np.all(np.isfinite(R)) and np.all(np.isfinite(centre))):
        return None
    pairs = int(np.clip(ROW_BUDGET / fit.num_rows, LEAST_PAIRS, MOST_PAIRS))
    z = np.random.default_rng(0).standard_normal((pairs, len(centre)))
    z = np.concatenate([z, -z])
    sds = np.sqrt(np.sum(R**2, axis=0))
    positions = [*fit.log_sd_positions().values(), *fit.dispersion_position().values()]
    # the others follow as they do under q: Sigma e_k / sd_k; omega_kk is minus a log sd
    signs = np.array([-1.0] * len(fit.random_names) + [1.0] * len(fit.dispersion_position()))
    away = signs[:, None] * PROBE * (R.T @ R)[positions] / sds[positions][:, None]
    moves = np.concatenate([np.zeros((1, len(centre))), away, -away, z @ R])
    values = MarginalDensity(target, posterior).values(centre + moves)
    ratios = values[1 + 2 * len(away) :] + 0.5 * np.sum(z**2, axis=1)
    if not (np.isfinite(values[0]) and np.any(np.isfinite(ratios))):
        return None
    weighted = smooth_weights(ratios)
    x = z @ R / sds
    shift = weighted.weights @ x
    ratio = np.sqrt(weighted.weights @ (x - shift) ** 2 / np.mean(x**2, axis=0))
    falls = (values[0] - values[1 : 1 + 2 * len(away)]).reshape(2, -1).T
    return Look(shift, ratio, weighted.k, weighted.effective, len(z), falls)


def _judge_moments(seen: Look, fit: "MixedFit") -> Trust:
    shift = seen.shift.copy()
    shift[list(fit.log_sd_positions().values())] *= -1.0  # omega_kk is minus a log sd
    names = fit.shared_names()
    worst, changed = int(np.argmax(np.abs(shift))), int(np.argmax(np.abs(np.log(seen.ratio))))
    size, change = float(np.abs(shift[worst])), float(seen.ratio[changed])
    tail = f"({seen.num_draws} draws worth {seen.effective:.0f}, Pareto k {seen.k:.2f})"
    heavy = seen.k >= RELIABLE_K and seen.effective < 0.5 * seen.num_draws
    if size <= SMALL_SHIFT and abs(np.log(change)) <= SMALL_CHANGE and not heavy:
        words = "integrating the random effects out exactly would move no parameter by more than"
        return Trust(GOOD, (f"{words} {size:.2f} posterior sds {tail}",))
    head = "integrating the random effects out exactly would"
    others = int(np.sum(np.abs(shift) > SMALL_SHIFT)) - 1
    more = f" and {others} more by over {SMALL_SHIFT}" if others > 0 else ""
    moved = f"move {names[worst]} by about {shift[worst]:+.1f} posterior sds{more}"
    widened = f"make the sd of {names[changed]} {change:.2f} times as large"
    parts = [moved] if size > SMALL_SHIFT else []
    parts += [widened] if abs(np.log(change)) > SMALL_CHANGE or not parts else []
    words = f"{head} {' and '.join(parts)} {tail}: {fit.assumption} does not fit"
    return Trust(CARE if size <= LARGE_SHIFT else REFUSE, (words,))


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


def judge_coefficients(target: SumOfTerms, fit: "MixedFit") -> tuple[Trust, ...]:
    """A coefficient as wide as its prior, and wide for the link: separation, or columns that say the same."""
    likelihood, prior = target.grouped[0], target.shared[0]
    assert isinstance(likelihood, LikelihoodRows) and isinstance(prior, NormalPrior)
    if fit.family.link == "identity":
        return ()
    p = likelihood.p
    _, covariance = fit.shared_moments()
    sds = np.sqrt(np.diag(covariance)[:p])
    filled = np.asarray(likelihood.design.filled)
    largest = np.array([np.max(np.abs(column[filled])) for column in np.asarray(likelihood.design.X)])
    loose = (sds > LOOSE * np.asarray(prior.sd)[:p]) & (sds * largest > WIDE)
    if not loose.any():
        return ()
    names = ", ".join(name for name, hit in zip(fit.fixed_names, loose, strict=True) if hit)
    words = (
        f"the data hardly limit {names}, so the prior decides: for some values of the columns there may be one outcome "
        "only (separation), or columns may repeat each other; merge levels, drop columns or set a tighter prior"
    )
    return (Trust(CARE, (words,)),)
