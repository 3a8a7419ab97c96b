"""The bound at an optimum, estimated on fresh draws, with its standard error."""

import numpy as np

from natvi.models.density.climbing.fitting import Optimum
from natvi.models.density.evaluator import LooksAtPoints

DRAWS = 1024


def bound_of(
    evaluator: LooksAtPoints, found: Optimum, rng: np.random.Generator, draws: int = DRAWS
) -> tuple[float, float]:
    """Return the mean of log p - log q over antithetic draws, which does not vary where p is a Gaussian, and its error.

    It is minus infinity where the Gaussian reaches beyond the end of the density.

    Args:
        evaluator: The log-density.
        found: The optimum.
        rng: For the draws.
        draws: How many.
    """
    d = len(found.gaussian.mean)
    half = rng.standard_normal((draws // 2, d))
    z = np.concatenate([half, -half])
    values = evaluator.values(found.gaussian.at(z)) + 0.5 * np.sum(z**2, axis=1) + found.gaussian.log_det
    values = values + 0.5 * d * np.log(2 * np.pi)
    pairs = 0.5 * (values[: len(half)] + values[len(half) :])
    if not np.all(np.isfinite(pairs)):
        return -np.inf, 0.0
    return float(np.mean(pairs)), float(np.std(pairs) / np.sqrt(len(pairs)))
