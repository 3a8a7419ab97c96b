"""The marginal method: the random effects integrated out, and the shared coordinates drawn by importance sampling.

From a Gaussian fit Newton's method goes to the mode of the exact marginal; its curvature, a look along the axes of the
log sds and a look for plateaus make a proposal; weighted draws correct it. The tail of the weights (Pareto k) says
whether that has worked; if not, the proposal takes over mean, covariance and sides of the weighted draws.
"""

from typing import NamedTuple

import numpy as np

from natvi.metrics.psis import RELIABLE_K, smooth_weights
from natvi.models.mixed_marginal_coordinates import from_shared, has_correlation, slopes, to_shared
from natvi.models.mixed_marginal_density import MarginalDensity
from natvi.models.mixed_marginal_proposal import draw_mixture, propose, refit
from natvi.models.mixed_marginal_search import find_mode, find_plateaus

ROW_BUDGET, LEAST_DRAWS, MOST_DRAWS = 2.0e7, 2048, 4096  # rows times draws
MOST_ROUNDS = 3
ENOUGH = 0.25  # share of the draws that should be effective
SEED = 1


class Positions(NamedTuple):
    """Where the special ones of the shared coordinates stand.

    Attributes:
        dispersion: The log dispersion, if there is one.
        log_sds: omega_kk.
        slanted: omega_lk, l > k.
    """

    dispersion: list[int]
    log_sds: list[int]
    slanted: list[int]


class MarginalDraws(NamedTuple):
    """Weighted draws of the shared coordinates.

    Attributes:
        shared: Draws `(s, g)`.
        weights: They sum to one, the tail smoothed.
        k: The Pareto k of the weights.
        effective: How many equally weighted draws they are worth.
        log_evidence: log p(y), estimated by the mean of the weights; in expectation a lower bound.
        error: Its standard error.
        rounds: How many proposals were tried.
        steps: Steps of Newton's method to the mode.
    """

    shared: np.ndarray
    weights: np.ndarray
    k: float
    effective: float
    log_evidence: float
    error: float
    rounds: int = 1
    steps: int = 0


def draw_marginal(
    density: MarginalDensity, mean: np.ndarray, covariance: np.ndarray, positions: Positions, num_rows: int
) -> MarginalDraws:
    """Draw the shared coordinates from their exact marginal.

    Args:
        density: The exact marginal.
        mean: Of a Gaussian fit, to start from.
        covariance: Of that fit.
        positions: Of the coordinates that may be lopsided.
        num_rows: Rows of data; fewer draws are taken of very many.

    Returns:
        Weighted draws.
    """
    curved, g = has_correlation(density.target), len(mean)
    x, spread = mean, covariance
    if curved:
        x, inverse = from_shared(mean), np.linalg.inv(slopes(from_shared(mean)))
        spread = inverse @ covariance @ inverse.T
    mode = find_mode(lambda points: density.scores(points, curved), x, np.linalg.cholesky(spread))
    lopsided = sorted([*positions.dispersion, *positions.log_sds, *positions.slanted])
    main = propose(density, mode.centre, mode.covariance, lopsided, max(8.0, 2.0 * g), curved)
    top, width = mode.centre, mode.covariance
    if curved:
        top, tangent = to_shared(mode.centre, np), slopes(mode.centre)
        width = tangent @ mode.covariance @ tangent.T
    plateaus = find_plateaus(density, top, width, positions.log_sds, positions.slanted, max(8.0, float(g)))
    rest = 1.0 - sum(share for share, _ in plateaus)
    mixture = [(rest, main), *plateaus]
    num_draws = 1 << int(np.log2(np.clip(ROW_BUDGET / num_rows, LEAST_DRAWS, MOST_DRAWS)))
    best: MarginalDraws | None = None
    for tried in range(1, MOST_ROUNDS + 1):
        draws, log_q = draw_mixture(mixture, num_draws, SEED)
        ratios = density.values(draws) - log_q
        if not np.any(np.isfinite(ratios)):
            break
        found = _weigh(draws, ratios)._replace(rounds=tried, steps=len(mode.trace))
        if best is None or _rank(found) > _rank(best):
            best = found
        if found.k < RELIABLE_K and found.effective > ENOUGH * num_draws:
            break
        # what was found, with the first proposal to guard against what was not
        again = refit(found.shared, found.weights, lopsided, max(6.0, float(g)), curved)
        mixture = [(0.5 * rest, again), (0.5 * rest, main), *plateaus]
    if best is None:
        raise FloatingPointError(
            "the exact marginal is not finite around its mode; look for extreme values in the data"
        )
    return best


def _weigh(draws: np.ndarray, ratios: np.ndarray) -> MarginalDraws:
    smoothed = smooth_weights(ratios)
    top = np.nanmax(ratios)
    raw = np.exp(np.where(np.isfinite(ratios), ratios, -np.inf) - top)
    error = float(np.std(raw) / np.mean(raw) / np.sqrt(len(raw)))
    evidence = float(top + np.log(np.mean(raw)))
    return MarginalDraws(draws, smoothed.weights, smoothed.k, smoothed.effective, evidence, error)


def _rank(found: MarginalDraws) -> float:
    return found.effective / len(found.weights) - max(0.0, found.k - RELIABLE_K)
