"""The marginal method: the random effects integrated out, and the shared coordinates drawn by importance sampling.

From a Gaussian fit Newton's method goes to the mode of the exact marginal; its curvature, a look along the axes of the
log sds and a look for plateaus make a proposal; weighted draws correct it. The tail of the weights (Pareto k) says
whether that has worked; if not, the proposal takes over mean, covariance and sides of the weighted draws, and in the
end a mixture of t distributions is fitted to them.
"""

from typing import NamedTuple

import numpy as np

from natvi.metrics.psis import RELIABLE_K, resample, smooth_weights
from natvi.metrics.t_mixture import fit_mixture
from natvi.models.mixed.marginal.coordinates import from_shared, has_correlation, slopes, to_shared
from natvi.models.mixed.marginal.density import MarginalDensity
from natvi.models.mixed.marginal.proposal import draw_mixture, propose, refit
from natvi.models.mixed.marginal.search import Mode, find_mode, find_plateaus

ROW_BUDGET, LEAST_DRAWS, MOST_DRAWS = 2.0e7, 2048, 4096  # rows times draws
MOST_ROUNDS = 3
ENOUGH, LEAST = 0.25, 0.125  # share of the draws that should be effective, and below which more is done
FUNNEL = 1.5  # sd of a log sd at the mode, above which the mode is none
MOST_MIXTURES, MIXTURE_DRAWS = 3, 2048
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

    Raises:
        FloatingPointError: If there are none, with a phrase that says where it failed.
    """
    try:
        return _draw_marginal(density, mean, covariance, positions, num_rows)
    except np.linalg.LinAlgError as error:
        raise FloatingPointError(
            f"a covariance around the mode of the exact marginal has no factor ({error})"
        ) from error


def _draw_marginal(
    density: MarginalDensity, mean: np.ndarray, covariance: np.ndarray, positions: Positions, num_rows: int
) -> MarginalDraws:
    g = len(mean)
    mode, curved = _find_mode(density, mean, covariance)
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
        weighed = _weigh(draws, density.values(draws), log_q)
        if weighed is None:
            break
        found = weighed._replace(rounds=tried, steps=len(mode.trace))
        best = _better(found, best)
        if _suffices(found, ENOUGH):
            break
        # what was found, with the first proposal to guard against what was not
        try:
            again = refit(found.shared, found.weights, lopsided, max(6.0, float(g)), curved)
        except np.linalg.LinAlgError:  # all the weight on too few draws; those before are kept
            break
        mixture = [(0.5 * rest, again), (0.5 * rest, main), *plateaus]
    if best is None:
        raise FloatingPointError("the exact marginal is not finite around its mode")
    return best if _suffices(best, LEAST) else _adapt(density, best)


def _find_mode(density: MarginalDensity, mean: np.ndarray, covariance: np.ndarray) -> tuple[Mode, bool]:
    """Return the mode of the marginal, and whether its coordinates are phi, of log sds and atanh of a correlation.

    An sd that may be zero is a funnel of phi, down which the search runs; then the mode of theta_g is taken.
    """
    if has_correlation(density.target):
        x = from_shared(mean)
        inverse = np.linalg.inv(slopes(x))
        start = np.linalg.cholesky(inverse @ covariance @ inverse.T)
        mode = find_mode(lambda points: density.scores(points, True), x, start)
        if np.max(np.diag(mode.covariance)[[-3, -1]]) < FUNNEL**2:
            return mode, True
    return find_mode(density.scores, mean, np.linalg.cholesky(covariance)), False


def _adapt(density: MarginalDensity, best: MarginalDraws) -> MarginalDraws:
    """Fit a mixture of t distributions to the weighted draws and draw from it, again and again: the last resort."""
    rng = np.random.default_rng(SEED)
    found, num_draws = best, len(best.weights)
    for tried in range(1, MOST_MIXTURES + 1):
        try:
            mixture = fit_mixture(found.shared[resample(found.weights, MIXTURE_DRAWS, rng)], rng)
        except np.linalg.LinAlgError:
            break
        draws = mixture.draw(num_draws, rng)
        weighed = _weigh(draws, density.values(draws), mixture.log_density(draws))
        if weighed is None:
            break
        found = weighed._replace(rounds=MOST_ROUNDS + tried, steps=best.steps)
        best = _better(found, best)
        if _suffices(found, ENOUGH):
            break
    return best


def _weigh(draws: np.ndarray, log_p: np.ndarray, log_q: np.ndarray) -> MarginalDraws | None:
    """Weigh the draws; where a density is not finite the weight is zero. None if it is so everywhere."""
    usable = np.isfinite(log_p) & np.isfinite(log_q)
    if not np.any(usable):
        return None
    ratios = np.where(usable, log_p, -np.inf) - np.where(usable, log_q, 0.0)
    smoothed = smooth_weights(ratios)
    top = int(np.argmax(ratios))
    raw = np.exp(ratios - ratios[top])
    error = float(np.std(raw) / np.mean(raw) / np.sqrt(len(raw)))
    evidence = float(ratios[top] + np.log(np.mean(raw)))
    # a draw without weight may be infinite, and zero times infinity is not zero
    kept = np.where(smoothed.weights[:, None] > 0, draws, draws[top])
    return MarginalDraws(kept, smoothed.weights, smoothed.k, smoothed.effective, evidence, error)


def _suffices(found: MarginalDraws, share: float) -> bool:
    return found.k < RELIABLE_K and found.effective > share * len(found.weights)


def _better(found: MarginalDraws, best: MarginalDraws | None) -> MarginalDraws:
    return found if best is None or _rank(found) > _rank(best) else best


def _rank(found: MarginalDraws) -> float:
    return found.effective / len(found.weights) - max(0.0, found.k - RELIABLE_K)
