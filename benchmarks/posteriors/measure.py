"""Accuracy of an answer against true draws, in the user's space; and which members a Gaussian can serve."""

from typing import Any, NamedTuple

import numpy as np

from benchmarks.posteriors.posterior import Draws

ACCURATE_SHIFT, ACCURATE_CHANGE = 0.1, 0.1  # posterior sds, and share of an sd
SILENT_SHIFT, SILENT_CHANGE = 0.25, 0.25
# A Gaussian can serve where no free coordinate is skewed, heavy-tailed or parted by more than this, and the Gaussian
# with the true moments, carried to the user's space, has the true means and sds there within half of what is asked.
MOST_SKEWNESS, MOST_KURTOSIS = 0.6, 1.2
SERVED = 0.05


class Accuracy(NamedTuple):
    """How far an answer is off: of a mean in posterior sds, of an sd as a share of the right one."""

    shift: float
    change: float

    @property
    def accurate(self) -> bool:
        """Whether means are within 0.1 sd and sds within 10%."""
        return self.shift <= ACCURATE_SHIFT and self.change <= ACCURATE_CHANGE

    @property
    def far_off(self) -> bool:
        """Whether a mean is off by over 0.25 sd or an sd by over 25%."""
        return self.shift > SILENT_SHIFT or self.change > SILENT_CHANGE


def flat(draws: Draws, names: Any) -> np.ndarray:
    """Return draws as columns, by the order of the names."""
    return np.concatenate([np.asarray(draws[name], float).reshape(len(draws[name]), -1) for name in names], axis=1)


def compare(mean: np.ndarray, sd: np.ndarray, right: np.ndarray, spread: np.ndarray) -> Accuracy:
    """Hold means and sds against true means and sds; what does not vary is left out."""
    varies = spread > 1e-12 * (1 + np.abs(right))
    shift = np.abs(mean - right)[varies] / spread[varies]
    change = np.abs(sd[varies] / spread[varies] - 1.0)
    bad = not (np.all(np.isfinite(shift)) and np.all(np.isfinite(change)))
    return Accuracy(np.inf, np.inf) if bad else Accuracy(float(np.max(shift)), float(np.max(change)))


def can_serve(free: np.ndarray, carry: Any, truth: np.ndarray) -> bool:
    """Decide whether a Gaussian can serve, from true draws alone.

    Args:
        free: True draws in the free space.
        carry: From the free space to the user's.
        truth: True draws in the user's space.
    """
    mean, sd = free.mean(axis=0), free.std(axis=0)
    x = (free - mean) / sd
    if (
        np.max(np.abs(np.mean(x**3, axis=0))) > MOST_SKEWNESS
        or np.max(np.abs(np.mean(x**4, axis=0) - 3)) > MOST_KURTOSIS
    ):
        return False
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(np.cov(free.T).reshape(len(mean), -1) + 1e-12 * np.diag(sd**2))
    half = rng.standard_normal((4096, len(mean)))
    carried = carry(mean + np.concatenate([half, -half]) @ root.T)
    found = compare(carried.mean(axis=0), carried.std(axis=0), truth.mean(axis=0), truth.std(axis=0))
    return found.shift <= SERVED and found.change <= SERVED
