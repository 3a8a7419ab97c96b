"""The method `integrated`: points of sds, correlations and dispersion with weights, a Gaussian of the rest at each.

p(hyper | y) is close to p(hyper) exp L(hyper), L being the best bound given it (INLA's idea, with the best Gaussian in
place of Laplace's). From the joint Gaussian Newton's method goes to the mode; curvature and a look along the axes make
a proposal with sides of their own, and further pieces where the density has a plateau towards a zero sd; evenly spread
points of it are weighted, and doubled until means and sds have settled; what noise they leave in the moments is taken
out by the smooth density through them (`smooth`). The answer is the mixture of the inner Gaussians.

What the bound lacks given hyper is the divergence of the inner Gaussian. It would not matter if it were the same
everywhere, but it grows with the sds. Where the largest factor's effects can be integrated out, weights of draws of the
rest tell it without bias (`exactly`), and the answer is the exact one but for the noise of these weights. Elsewhere it
is half the variance of log p - log q where that is close to normal; how far that moves the answer says how far the
answer can be trusted.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedMatrix
from natvi.models.mixed.crossed.integrated.inner import Described, IntegratedDensity, draws_each
from natvi.models.mixed.crossed.integrated.smooth import smooth
from natvi.models.mixed.marginal.chart import Plain
from natvi.models.mixed.marginal.proposal import Mixture, draw_mixture, propose, refit
from natvi.models.mixed.marginal.search import find_mode, find_plateaus
from natvi.models.mixed.marginal.settle import weigh
from natvi.target.mixed.crossed import CrossedTarget

DIFFERENCE = 0.05  # in sds, for second derivatives from differences of gradients
FEW, MANY = 128, 256  # points, for up to two hyper-parameters and for more
ENOUGH, MOST_ROUNDS = 0.35, 3  # share of the points that should be effective
MEAN_ERROR, SD_ERROR = 0.08, 0.06  # at which points are enough: evenly spread ones err by less than independent draws
STRETCH = 0.5  # in sds, for the slope of what the bound lacks
SEED = 1

Reading = Callable[[np.ndarray], np.ndarray]


class Positions(NamedTuple):
    """Where log sds (omega_kk) and what belongs to correlations (omega_lk) stand among the hyper-parameters."""

    log_sds: list[int]
    slanted: list[int]


class Points(NamedTuple):
    """Weighted points of the hyper-parameters with the Gaussians there.

    Attributes:
        hyper: The points `(m, h)`.
        log_q: The log density with which they were proposed.
        weights: What they stand for, what the bound lacks taken into account; they sum to one.
        plain: Weights by the bound alone.
        exact: Whether what it lacks is known without bias.
        described: The Gaussians.
        k: The Pareto k of the weights.
        effective: How many equally weighted points they are worth.
        log_evidence: log p(y).
        error: Its standard error.
        steps: Steps to the mode.
        num_points: How many inner Gaussians were found in all.
        errors: Largest standard errors of means, in sds, and of log sds, before weights were smoothed.
        missed: By how many nats the smooth density misses points; NaN where weights were not smoothed.
    """

    hyper: np.ndarray
    log_q: np.ndarray
    weights: np.ndarray
    plain: np.ndarray
    exact: bool
    described: Described
    k: float
    effective: float
    log_evidence: float
    error: float
    steps: int
    num_points: int
    errors: tuple[float, float]
    missed: float = np.nan


def integrate(
    target: CrossedTarget,
    mean: ArrowVector,
    precision: BlockedMatrix,
    covariance: np.ndarray,
    positions: Positions,
    read: Reading,
    most_points: int,
    num_ratios: int = 0,
) -> Points:
    """Weigh points of the hyper-parameters, until means and sds of what is read of them have settled.

    Args:
        target: The model.
        mean: Of the joint Gaussian.
        precision: Of the joint Gaussian.
        covariance: Of its hyper-parameters.
        positions: Which hyper-parameters are log sds, and which belong to correlations.
        read: From hyper-parameters to sds, correlations and dispersion.
        most_points: At most.
        num_ratios: Draws that are weighted exactly at every point; none, for the second-order term.

    Raises:
        FloatingPointError: If there is no point with a finite bound, with a phrase that says where it failed.
    """
    p, b = target.p, target.b
    centre = np.asarray(mean.shared)[p:b]
    density = IntegratedDensity(target, mean, precision, centre, num_ratios)
    every, dof, chart, g = list(range(len(centre))), max(8.0, 2.0 * len(centre)), Plain(), float(len(centre))
    try:
        mode = find_mode(density.scores, centre, np.linalg.cholesky(covariance), DIFFERENCE)
        main = propose(density, mode.centre, mode.covariance, every, dof, chart)
        around = mode.centre, mode.covariance, positions.log_sds, positions.slanted
        low = find_plateaus(density, *around, max(8.0, g), chart, DIFFERENCE)
    except np.linalg.LinAlgError as error:
        raise FloatingPointError(f"the bound has no curvature around its mode ({error})") from error
    rest = 1.0 - sum(share for share, _ in low)
    parts: Mixture = [(rest, main), *low]
    size, best, source = FEW if len(centre) <= 2 else MANY, None, parts
    for tried in range(MOST_ROUNDS):
        found = _look(density, parts, size, SEED + tried, len(mode.trace))
        if found is None:
            break
        if best is None or found.effective > best.effective:
            best, source = found, parts
        if found.effective > ENOUGH * size:
            break
        again = refit(found.hyper, found.weights, every, dof, chart)
        parts = [(0.7 * rest, again), (0.3 * rest, main), *low]
    if best is None:
        raise FloatingPointError("the bound is not finite around its mode")
    seed = SEED + MOST_ROUNDS
    while 2 * len(best.weights) <= most_points and not _settled(best, read):
        more = _look(density, source, len(best.weights), seed, len(mode.trace))
        if more is None:
            break
        best, seed = _together(best, more), seed + 1
    errors, log_p = _errors(best, read), best.described.inner.bound + best.described.lacking
    log_p = np.where(best.described.inner.settled > 0, log_p, np.nan)
    smoothed = smooth(best.hyper, log_p, best.weights, source, positions.log_sds)
    if smoothed is not None:
        best = best._replace(weights=smoothed.weights, missed=smoothed.error)
    return _thinned(best)._replace(num_points=density.num_points, errors=errors)


class Top(NamedTuple):
    """Where the density of the hyper-parameters has its mode, and its curvature.

    Attributes:
        centre: The mode of the bound's density, moved by what the bound lacks.
        covariance: Of the bound's density there.
        moved: By what the bound lacks, in sds; zero where that is not known.
        error: Standard error of that.
    """

    centre: np.ndarray
    covariance: np.ndarray
    moved: float
    error: float


def mode_of_hyper(
    target: CrossedTarget,
    mean: ArrowVector,
    precision: BlockedMatrix,
    covariance: np.ndarray,
    centre: np.ndarray,
    num_ratios: int = 0,
) -> Top:
    """Return the mode of the hyper-parameters' density with its curvature, from their Gaussian.

    What the bound lacks is a smooth function of the hyper-parameters. Its slope, from differences at the same random
    numbers, moves the mode by the covariance times it.
    """
    density = IntegratedDensity(target, mean, precision, centre, num_ratios)
    mode = find_mode(density.scores, centre, np.linalg.cholesky(covariance), DIFFERENCE)
    if not num_ratios:
        return Top(mode.centre, mode.covariance, 0.0, 0.0)
    root = np.linalg.cholesky(mode.covariance)
    ways = STRETCH * np.concatenate([root.T, -root.T])
    found = density.describe(mode.centre + ways, SEED, common=True)
    up, down = np.split(found.lacking, 2)
    slope = (up - down) / (2.0 * STRETCH)
    raw = np.exp(found.log_ratios - (found.lacking + found.inner.bound)[:, None])
    up, down = np.split(raw, 2)
    error = np.std(up - down, axis=1) / np.sqrt(num_ratios) / (2.0 * STRETCH)
    whole = float(np.sqrt(np.sum(slope**2))), float(np.sqrt(np.sum(error**2)))
    return Top(mode.centre + root @ slope, mode.covariance, *whole)


def _look(density: IntegratedDensity, parts: Mixture, size: int, seed: int, steps: int) -> Points | None:
    """Draw points from a mixture and weigh them."""
    points, log_q = draw_mixture(parts, size, seed)
    return _weigh(points, log_q, density.describe(points, seed), steps, density.num_ratios > 0)


def _weigh(points: np.ndarray, log_q: np.ndarray, described: Described, steps: int, exact: bool) -> Points | None:
    bound = np.where(described.inner.settled > 0, described.inner.bound, np.nan)
    plain, better = (weigh(points, bound + part, log_q) for part in (0.0, described.lacking))
    if plain is None or better is None:
        return None
    return Points(
        better.shared,
        log_q,
        better.weights,
        plain.weights,
        exact,
        described,
        better.k,
        better.effective,
        better.log_evidence,
        better.error,
        steps,
        0,
        (0.0, 0.0),
    )


def _together(one: Points, other: Points) -> Points:
    """Weigh the points of two looks at once."""
    both: Described = jax.tree.map(lambda *a: np.concatenate(a), one.described, other.described)
    hyper, log_q = (np.concatenate(parts) for parts in ((one.hyper, other.hyper), (one.log_q, other.log_q)))
    found = _weigh(hyper, log_q, both, one.steps, one.exact)
    assert found is not None
    return found


def _errors(points: Points, read: Reading) -> tuple[float, float]:
    """Return the largest standard errors of means, in sds, and of log sds, as if points were independent draws.

    What is read of a point is a number, a coefficient there a Gaussian: with means m_i and variances v_i,
    mean = sum w m, variance V = sum w (v + (m - mean)²), errors sqrt(sum w² (m - mean)² / V) and
    sqrt(sum w² ((v + (m - mean)²) / V - 1)²) / 2.
    """
    w, found = points.weights, points.described
    components = read(points.hyper)
    means = np.concatenate([components, found.beta], axis=1)
    own = np.diagonal(found.beta_covariance, axis1=1, axis2=2)
    variances = np.concatenate([np.zeros_like(components), own], axis=1)
    squares = (means - w @ means) ** 2
    V = np.maximum(w @ (variances + squares), 1e-300)
    of_mean = np.sqrt(w**2 @ squares / V)
    of_sd = 0.5 * np.sqrt(w**2 @ ((variances + squares) / V - 1.0) ** 2)
    return float(np.max(of_mean)), float(np.max(of_sd))


def _settled(points: Points, read: Reading) -> bool:
    of_mean, of_sd = _errors(points, read)
    return of_mean <= MEAN_ERROR and of_sd <= SD_ERROR


def _thinned(points: Points) -> Points:
    """Leave out draws of each Gaussian, in pairs, where there are more points than were foreseen."""
    found = points.described
    each = found.draws.shape[1]
    keep = min(each, draws_each(len(points.weights), found.draws.shape[2]))
    at = [*range(keep // 2), *range(each // 2, each // 2 + keep // 2)]
    return points._replace(described=found._replace(draws=found.draws[:, at], beta_draws=found.beta_draws[:, at]))
