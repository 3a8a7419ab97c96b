"""Weighted draws, and more of them until the means and sds of all parameters have settled.

With normalised weights w the standard errors of the mean m of f, in its sds, and of the logarithm of its sd are

    sqrt{sum_i (w_i - c)^2 (f_i - m)^2 / v},    1/2 sqrt{sum_i (w_i - c)^2 ((f_i - m)^2 / v - 1)^2}

with c = 0 for independent draws. Points that are spread evenly and have the proposal's moments leave the noise of the
weights alone, c = 1/s; where its tails are meant to be heavier that is no noise either, so that the smaller of
both counts where draws are few and their weights even. A correlation close to one, or an sd that may be zero, has an sd
to which few draws contribute: there it takes more of them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natvi.metrics.psis import smooth_weights
from natvi.models.mixed.marginal.density import MarginalDensity

MEAN_ERROR, SD_ERROR = 0.05, 0.04  # standard errors that are small enough; the thresholds of "good" are twice as large
EVEN_MEAN_ERROR, EVEN_SD_ERROR = 0.035, 0.036  # of points spread evenly: on Table 11's data errors are half of them
FURTHER = 1000  # seeds of further draws begin above

Source = Callable[[int, int], tuple[np.ndarray, np.ndarray]]  # number of draws and seed to draws and their log density
Reading = Callable[[np.ndarray], np.ndarray]


class MarginalDraws(NamedTuple):
    """Weighted draws of the shared coordinates.

    Attributes:
        shared: Draws `(s, g)`.
        weights: They sum to one, the tail smoothed.
        k: The Pareto k of the weights.
        effective: How many equally weighted draws they are worth.
        log_evidence: log p(y), estimated by the mean of the weights; in expectation a lower bound.
        error: Its standard error.
        ratios: log p - log q of every draw.
        rounds: How many proposals were tried.
        steps: Steps of Newton's method to the mode.
        source: Where further draws come from.
    """

    shared: np.ndarray
    weights: np.ndarray
    k: float
    effective: float
    log_evidence: float
    error: float
    ratios: np.ndarray
    rounds: int = 1
    steps: int = 0
    source: Source | None = None


def weigh(
    draws: Float[np.ndarray, "s g"], log_p: Float[np.ndarray, " s"], log_q: Float[np.ndarray, " s"]
) -> MarginalDraws | None:
    """Weigh the draws; where a density is not finite the weight is zero. None if it is so everywhere."""
    usable = np.isfinite(log_p) & np.isfinite(log_q)
    if not np.any(usable):
        return None
    return _weigh(draws, np.where(usable, log_p, -np.inf) - np.where(usable, log_q, 0.0))


def _weigh(draws: np.ndarray, ratios: np.ndarray) -> MarginalDraws:
    smoothed = smooth_weights(ratios)
    top = int(np.argmax(ratios))
    raw = np.exp(ratios - ratios[top])
    error = float(np.std(raw) / np.mean(raw) / np.sqrt(len(raw)))
    evidence = float(ratios[top] + np.log(np.mean(raw)))
    # a draw without weight may be infinite, and zero times infinity is not zero
    kept = np.where(smoothed.weights[:, None] > 0, draws, draws[top])
    return MarginalDraws(kept, smoothed.weights, smoothed.k, smoothed.effective, evidence, error, ratios)


def settle(
    density: MarginalDensity, source: Source, found: MarginalDraws, read: Reading, most_draws: int, seed: int
) -> MarginalDraws:
    """Double the draws until the standard errors are small enough, or there are as many as may be.

    Args:
        density: The exact marginal.
        source: Where the draws came from.
        found: The first draws.
        read: From draws to the parameters that should settle.
        most_draws: At most.
        seed: Of the first draws; later ones have the next.

    Returns:
        All draws with their weights.
    """
    found = found._replace(source=source)
    while 2 * len(found.weights) <= most_draws and not settled(read(found.shared), found.weights):
        seed += 1
        more = _doubled(density, found, seed)
        if more is None:
            break
        found = more
    return found


def further(density: MarginalDensity, found: MarginalDraws, num_draws: int) -> MarginalDraws:
    """Return at least as many draws, those that are there and more of their kind."""
    seed = FURTHER
    while len(found.weights) < num_draws:
        seed += 1
        more = _doubled(density, found, seed)
        if more is None:
            break
        found = more
    return found


def _doubled(density: MarginalDensity, found: MarginalDraws, seed: int) -> MarginalDraws | None:
    """Return twice as many draws, or None where there are no more."""
    if found.source is None:
        return None
    draws, log_q = found.source(len(found.weights), seed)
    more = weigh(draws, density.values(draws), log_q)
    if more is None:
        return None
    pooled = _weigh(np.concatenate([found.shared, more.shared]), np.concatenate([found.ratios, more.ratios]))
    return pooled._replace(rounds=found.rounds, steps=found.steps, source=found.source)


def settled(values: Float[np.ndarray, "s k"], weights: Float[np.ndarray, " s"], even: bool = False) -> bool:
    """Whether means and sds of weighted draws are known well enough; `even` for points that are spread evenly.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((2048, 1))
        >>> settled(x, np.full(2048, 1 / 2048)), settled(x[:64], np.full(64, 1 / 64))
        (True, False)
    """
    mean = weights @ values
    squares = (values - mean) ** 2
    variance = np.maximum(weights @ squares, 1e-300)
    moments = squares / variance, 0.25 * (squares / variance - 1.0) ** 2
    noises = [weights**2, (weights - 1.0 / len(weights)) ** 2] if even else [weights**2]
    of_mean, of_sd = np.sqrt(np.min([[noise @ f for f in moments] for noise in noises], axis=0))
    limits = (EVEN_MEAN_ERROR, EVEN_SD_ERROR) if even else (MEAN_ERROR, SD_ERROR)
    return bool(np.all(of_mean <= limits[0]) and np.all(of_sd <= limits[1]))
