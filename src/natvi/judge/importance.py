"""Weighted draws of an exact density, from a Gaussian that is not quite right: the rung above it.

Draws of the Gaussian and of a wider t distribution are weighted; where the weights are poor and the coordinates few, a
mixture of t distributions is fitted to the weighted draws and drawn from again (population Monte Carlo).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natvi.judge import thresholds
from natvi.judge.proposals import draw_pairs, together
from natvi.judge.shape import LogDensity
from natvi.metrics.psis import resample, smooth_weights
from natvi.metrics.t_mixture import fit_mixture

NUM_DRAWS, ROUNDS = 4096, 4
ENOUGH = 0.25  # share of the draws that should be effective
MOST_COORDINATES = 30  # for a mixture, whose covariances the draws have to determine
MIXTURE_DRAWS = 2048


class Weighted(NamedTuple):
    """Draws with weights that sum to one.

    Attributes:
        draws: `(s, d)`.
        weights: Of the draws.
        k: The Pareto k of the weights.
        effective: How many equally weighted draws they are worth.
        log_evidence: Logarithm of the integral of the density.
        error: Its standard error.
    """

    draws: np.ndarray
    weights: np.ndarray
    k: float
    effective: float
    log_evidence: float
    error: float

    @property
    def suffices(self) -> bool:
        """Whether no better proposal is needed."""
        return self.k < thresholds.LARGEST_K and self.effective > ENOUGH * len(self.weights)


def importance_draws(
    log_density: LogDensity,
    mean: Float[np.ndarray, " d"],
    factor: Float[np.ndarray, "d d"] | Float[np.ndarray, " d"],
    num_draws: int = NUM_DRAWS,
) -> Weighted | None:
    """Return the best weighted draws that a few rounds give; None where the density is nowhere finite.

    Args:
        log_density: Log of the exact density at many points.
        mean: Of the Gaussian.
        factor: C, or the sds of independent coordinates.
        num_draws: In every round.
    """
    d, rng = len(mean), np.random.default_rng(1)
    narrow, wide = (draw_pairs(num_draws // 4, d, rng, flag) for flag in (False, True))
    z, _, log_g = together(narrow, wide)
    log_root = np.sum(np.log(np.abs(factor if factor.ndim == 1 else np.diagonal(factor))))
    draws = mean + (z * factor if factor.ndim == 1 else z @ factor.T)
    best = _weigh(draws, log_density(draws), log_g - log_root)
    for _ in range(ROUNDS - 1):
        if best is None or best.suffices or d > MOST_COORDINATES:
            break
        try:
            mixture = fit_mixture(best.draws[resample(best.weights, MIXTURE_DRAWS, rng)], rng)
        except np.linalg.LinAlgError:  # all the weight on too few draws
            break
        draws = mixture.draw(num_draws, rng)
        found = _weigh(draws, log_density(draws), mixture.log_density(draws))
        if found is None:
            break
        best = max(best, found, key=lambda w: w.effective - len(w.weights) * max(0.0, w.k - thresholds.LARGEST_K))
    return best


def _weigh(draws: np.ndarray, log_p: np.ndarray, log_q: np.ndarray) -> Weighted | None:
    ratios = np.where(np.isfinite(log_p), log_p, -np.inf) - log_q
    if not np.any(np.isfinite(ratios)):
        return None
    found = smooth_weights(ratios)
    top = float(np.max(ratios))
    raw = np.exp(ratios - top)
    error = float(np.std(raw) / np.mean(raw) / np.sqrt(len(raw)))
    return Weighted(draws, found.weights, found.k, found.effective, top + float(np.log(np.mean(raw))), error)
