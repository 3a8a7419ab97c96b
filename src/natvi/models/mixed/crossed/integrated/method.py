"""The method `integrated`: points of sds, correlations and dispersion with weights, a Gaussian of the rest at each.

p(hyper | y) is close to p(hyper) exp L(hyper), L being the best bound given it (INLA's idea, with the best Gaussian in
place of Laplace's). From the joint Gaussian Newton's method goes to the mode; curvature and a look along the axes make
a proposal with sides of their own, and further pieces where the density has a plateau towards a zero sd; evenly spread
points of it are weighted, and doubled until means and sds have settled. The answer is the mixture of the inner
Gaussians.

What the bound lacks given hyper is the divergence of the inner Gaussian, half the variance of log p - log q where that
is close to normal. It would not matter if it were the same everywhere; how far it moves the answer says how far the
answer can be trusted, and as far as that it is taken into account.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedMatrix
from natvi.models.mixed.crossed.integrated.inner import Described, IntegratedDensity, draws_each
from natvi.models.mixed.marginal.chart import Plain
from natvi.models.mixed.marginal.proposal import Mixture, draw_mixture, propose, refit
from natvi.models.mixed.marginal.search import Mode, find_mode, find_plateaus
from natvi.models.mixed.marginal.settle import weigh
from natvi.target.mixed.crossed import CrossedTarget

DIFFERENCE = 0.05  # in sds, for second derivatives from differences of gradients
FEW, MANY = 128, 256  # points, for up to two hyper-parameters and for more
ENOUGH, MOST_ROUNDS = 0.35, 3  # share of the points that should be effective
MEAN_ERROR, SD_ERROR = 0.08, 0.06  # at which points are enough: evenly spread ones err by less than independent draws
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
        weights: What they stand for, the spread of log p - log q taken into account; they sum to one.
        plain: Weights without that.
        described: The Gaussians.
        k: The Pareto k of the weights.
        effective: How many equally weighted points they are worth.
        log_evidence: log p(y).
        error: Its standard error.
        steps: Steps to the mode.
        num_points: How many inner Gaussians were found in all.
        errors: Largest standard errors of means, in sds, and of log sds.
    """

    hyper: np.ndarray
    log_q: np.ndarray
    weights: np.ndarray
    plain: np.ndarray
    described: Described
    k: float
    effective: float
    log_evidence: float
    error: float
    steps: int
    num_points: int
    errors: tuple[float, float]


def integrate(
    target: CrossedTarget,
    mean: ArrowVector,
    precision: BlockedMatrix,
    covariance: np.ndarray,
    positions: Positions,
    read: Reading,
    most_points: int,
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

    Raises:
        FloatingPointError: If there is no point with a finite bound, with a phrase that says where it failed.
    """
    p, b = target.p, target.b
    centre = np.asarray(mean.shared)[p:b]
    density = IntegratedDensity(target, mean, precision, centre)
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
    return _thinned(best)._replace(num_points=density.num_points, errors=_errors(best, read))


def mode_of_hyper(
    target: CrossedTarget, mean: ArrowVector, precision: BlockedMatrix, covariance: np.ndarray, centre: np.ndarray
) -> Mode:
    """Return the mode of the hyper-parameters' density with its curvature, from their Gaussian."""
    density = IntegratedDensity(target, mean, precision, centre)
    return find_mode(density.scores, centre, np.linalg.cholesky(covariance), DIFFERENCE)


def _look(density: IntegratedDensity, parts: Mixture, size: int, seed: int, steps: int) -> Points | None:
    """Draw points from a mixture and weigh them."""
    points, log_q = draw_mixture(parts, size, seed)
    return _weigh(points, log_q, density.describe(points, seed), steps)


def _weigh(points: np.ndarray, log_q: np.ndarray, described: Described, steps: int) -> Points | None:
    bound = np.where(described.inner.settled > 0, described.inner.bound, np.nan)
    plain, better = (weigh(points, bound + part, log_q) for part in (0.0, 0.5 * described.spread))
    if plain is None or better is None:
        return None
    return Points(
        better.shared,
        log_q,
        better.weights,
        plain.weights,
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
    found = _weigh(np.concatenate([one.hyper, other.hyper]), np.concatenate([one.log_q, other.log_q]), both, one.steps)
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
