"""Pareto-smoothed importance weights (Vehtari, Simpson, Gelman, Yao and Gabry 2024), and what they are worth.

The largest weights are replaced by the quantiles of a generalized Pareto distribution fitted to them. Its shape k tells
whether the weights can be used: below 0.7 averages settle in reasonable time, from 1 on they have no mean. ArviZ does
the same; this file spares a fit its import.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

RELIABLE_K = 0.7
LEAST_TAIL = 5  # weights: fewer cannot be fitted


class SmoothedWeights(NamedTuple):
    """Importance weights that sum to one.

    Attributes:
        weights: Of every draw.
        k: The shape of their tail; infinite where there are too few draws to say.
        effective: How many equally weighted draws the weighted ones are worth, 1 / sum of squares.
    """

    weights: np.ndarray
    k: float
    effective: float


def smooth_weights(log_ratios: Float[np.ndarray, " s"]) -> SmoothedWeights:
    """Return smoothed weights from log p - log q of draws from q, up to a constant.

    Example:
        >>> flat = smooth_weights(np.linspace(0.0, 1e-3, 200))
        >>> flat.k < 0.7, round(flat.effective)
        (True, 200)
    """
    ratios = np.where(np.isnan(log_ratios), -np.inf, log_ratios)
    if not np.any(np.isfinite(ratios)) or np.any(ratios == np.inf):
        raise ValueError("importance weights need finite log ratios; none is finite, or one is infinite.")
    values = np.exp(ratios - np.max(ratios))
    s = len(values)
    length = int(np.ceil(min(0.2 * s, 3.0 * np.sqrt(s))))
    order = np.argsort(values)
    k, tail = np.inf, order[s - length :]
    if length >= LEAST_TAIL:
        cutoff = max(values[order[s - length - 1]], np.finfo(float).tiny)
        excess = values[tail] - cutoff
        if excess[-1] - excess[0] <= 1e-12 * values[tail[-1]]:
            k = -1.0  # all the same: no tail
        elif excess[0] > 0.0:
            k, scale = fit_pareto(excess)
            middles = (np.arange(length) + 0.5) / length
            values[tail] = np.minimum(cutoff + pareto_quantiles(middles, k, scale), 1.0)
    weights = values / values.sum()
    return SmoothedWeights(weights, float(k), float(1.0 / np.sum(weights**2)))


def fit_pareto(excess: Float[np.ndarray, " m"]) -> tuple[float, float]:
    """Return shape k and scale of the generalized Pareto distribution of sorted positive values.

    Zhang and Stephens (2009): with b = -k / scale the profile likelihood has one parameter; its posterior mean under a
    weak prior is a sum over a grid. The shape is pulled towards 1/2 with the weight of ten values.
    """
    m = len(excess)
    size = 30 + int(np.sqrt(m))
    b = (1.0 - np.sqrt(size / (np.arange(1, size + 1) - 0.5))) / (3.0 * excess[int(m / 4 + 0.5) - 1])
    b += 1.0 / excess[-1]
    shapes = np.mean(np.log1p(-b[:, None] * excess), axis=1)
    # profile log-likelihood m {log(-b / k) - k - 1}
    heights = m * (np.log(-b / shapes) - shapes - 1.0)
    weights = np.exp(heights - np.max(heights))
    middle = float(np.sum(b * weights) / np.sum(weights))
    k = float(np.mean(np.log1p(-middle * excess)))
    return (m * k + 5.0) / (m + 10.0), -k / middle


def pareto_quantiles(p: Float[np.ndarray, " m"], k: float, scale: float) -> Float[np.ndarray, " m"]:
    """Return quantiles scale {(1 - p)^-k - 1} / k."""
    tail = -np.log1p(-p)
    return scale * (tail if abs(k) < 1e-12 else np.expm1(k * tail) / k)


def weighted_quantiles(
    values: Float[np.ndarray, "s k"], weights: Float[np.ndarray, " s"], probabilities: list[float]
) -> Float[np.ndarray, "q k"]:
    """Return quantiles of every column of weighted draws, between the middles of the steps of the distribution.

    Example:
        >>> weighted_quantiles(np.array([[1.0], [2.0], [3.0]]), np.array([0.25, 0.5, 0.25]), [0.5])
        array([[2.]])
    """
    found = np.empty((len(probabilities), values.shape[1]))
    for j, column in enumerate(values.T):
        order = np.argsort(column)
        steps = weights[order]
        found[:, j] = np.interp(probabilities, np.cumsum(steps) - steps / 2, column[order])
    return found


def resample(weights: Float[np.ndarray, " s"], num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return indices of equally weighted draws in random order: each about `num_draws` times its weight often."""
    edges = np.cumsum(weights)
    at = np.searchsorted(edges / edges[-1], (np.arange(num_draws) + rng.uniform()) / num_draws)
    return rng.permutation(np.minimum(at, len(weights) - 1))
