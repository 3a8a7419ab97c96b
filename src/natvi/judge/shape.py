"""The shape check: how far a Gaussian q is from the exact density p, in means and sds of what the user reads.

Weighted draws give the moments of p, the same draws those of q, and what is known about q exactly, E x = 0 and
E (x^2 - 1) = 0 of its standardised coordinates, takes most of the noise away (control variates). Every estimate comes
with its standard error, so that few draws decide what is clear and more are taken only near a threshold.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from natvi.judge import thresholds
from natvi.judge.proposals import draw_pairs, together
from natvi.metrics.psis import smooth_weights


class Shape(NamedTuple):
    """What weighted draws say about a Gaussian.

    Attributes:
        shift: How far every mean of p is from that of q, in sds of p.
        shift_error: Standard errors.
        change: Logarithm of sd under p over sd under q.
        change_error: Standard errors.
        k: The Pareto k of the weights.
        effective: How many equally weighted draws the weighted ones are worth.
        num_draws: The number of draws.
        draws: theta of every draw `(s, d)`.
        weights: Their weights under p, which sum to one.
    """

    shift: np.ndarray
    shift_error: np.ndarray
    change: np.ndarray
    change_error: np.ndarray
    k: float
    effective: float
    num_draws: int
    draws: np.ndarray
    weights: np.ndarray

    @property
    def reliable(self) -> bool:
        """Whether the tail of the weights allows averages."""
        return self.k < thresholds.LARGEST_K

    @property
    def off(self) -> bool:
        """Whether a mean or an sd is off by more than "good" allows."""
        return bool(np.any(np.abs(self.shift) > thresholds.SHIFT) or np.any(np.abs(self.change) > thresholds.CHANGE))

    @property
    def clearly_off(self) -> bool:
        """Whether a mean or an sd is off whatever the noise."""
        return self.effective >= thresholds.LEAST_SURE and self._beyond(-1.0)

    @property
    def clearly_right(self) -> bool:
        """Whether no mean and no sd can be off, whatever the noise."""
        return self.effective >= thresholds.LEAST_SURE and not self._beyond(1.0)

    def _beyond(self, sign: float) -> bool:
        errors = -sign * float(ndtri(thresholds.DOUBT / max(2 * len(self.shift), 1)))
        moved = np.abs(self.shift) + errors * self.shift_error > thresholds.SHIFT
        changed = np.abs(self.change) + errors * self.change_error > thresholds.CHANGE
        return bool(np.any(moved) or np.any(changed))


class Difference(NamedTuple):
    """Shifts of means and logarithms of ratios of sds, with standard errors."""

    shift: np.ndarray
    shift_error: np.ndarray
    change: np.ndarray
    change_error: np.ndarray


def compare_moments(
    values: Float[np.ndarray, "s k"],
    weights: Float[np.ndarray, " s"],
    plain: Float[np.ndarray, " s"],
    controls: Float[np.ndarray, "s k c"],
) -> Difference:
    """Compare the moments of weighted draws under two sets of weights.

    With normalised weights w of p and u of q the influence of draw i on the difference of the means, and on the log
    ratio of the sds, is

        s w_i (f_i - m_p) - s u_i (f_i - m_q),    s/2 [w_i {(f_i - m_p)^2/v_p - 1} - u_i {(f_i - m_q)^2/v_q - 1}].

    What of it is linear in controls, whose mean is known to be zero, is taken away.

    Args:
        values: What is read off every draw; the second half of the draws mirrors the first.
        weights: Of p; they sum to one.
        plain: Of q; they sum to one.
        controls: Functions of the draws with expectation zero, for every column of the values.

    Returns:
        The differences, in sds of p.
    """
    s = len(values)
    mean_p, mean_q = weights @ values, plain @ values
    var_p, var_q = weights @ (values - mean_p) ** 2, plain @ (values - mean_q) ** 2
    # no spread at all, as of a value that is beyond the range of numbers: nothing can be compared
    with np.errstate(divide="ignore", invalid="ignore"):
        sd = np.sqrt(var_p)
        w, u = s * weights[:, None], s * plain[:, None]
        first = (w * (values - mean_p) - u * (values - mean_q)) / sd
        second = 0.5 * (w * ((values - mean_p) ** 2 / var_p - 1.0) - u * ((values - mean_q) ** 2 / var_q - 1.0))
        start = (mean_p - mean_q) / sd, 0.5 * np.log(var_p / var_q)
    found = []
    for estimate, influence in zip(start, (first, second), strict=True):
        adjusted = np.array([_adjust(influence[:, j], controls[:, j]) for j in range(values.shape[1])]).reshape(-1, 2)
        found += [estimate + adjusted[:, 0], adjusted[:, 1]]
    return Difference(*found)


def _adjust(influence: Float[np.ndarray, " s"], controls: Float[np.ndarray, "s c"]) -> tuple[float, float]:
    """Return what the controls add to an estimate, and the standard error of the sum; pairs count as one draw."""
    half = len(influence) // 2
    y, h = influence.reshape(2, half).mean(axis=0), controls.reshape(2, half, -1).mean(axis=0)
    if not (np.all(np.isfinite(y)) and np.all(np.isfinite(h))):
        return np.nan, np.inf
    middle = h.mean(axis=0)
    slopes = np.linalg.lstsq(h - middle, y - y.mean(), rcond=1e-10)[0]
    rest = y - y.mean() - (h - middle) @ slopes
    return float(-middle @ slopes), float(np.sqrt(np.sum(rest**2) / max(half - 1 - h.shape[1], 1) / half))


LogDensity = Callable[[Float[np.ndarray, "s d"]], Float[np.ndarray, " s"]]
Reading = Callable[[Float[np.ndarray, "s d"]], Float[np.ndarray, "s k"]]


def look_closer(
    log_density: LogDensity,
    mean: Float[np.ndarray, " d"],
    factor: Float[np.ndarray, "d d"] | Float[np.ndarray, " d"],
    read: Reading,
    directions: Float[np.ndarray, "k d"],
    most_draws: int = thresholds.MOST_DRAWS,
) -> Shape | None:
    """Hold N(mean, C C') against an exact density, with as many draws as the answer needs.

    A first look takes few draws from the Gaussian. While it is not clear on which side of the thresholds the fit is,
    there are four times as many; where the tail of the weights is heavy, as many again come from a wider distribution.

    Args:
        log_density: Log of the exact density, up to a constant, at many points.
        mean: Of the Gaussian.
        factor: C, or the sds of independent coordinates.
        read: From points to what the user reads.
        directions: For everything read, the combination of coordinates with which it moves most.
        most_draws: At most.

    Returns:
        What was found; None where the density is nowhere finite.
    """
    d, rng = len(mean), np.random.default_rng(0)
    # x = A (theta - mean), each of sd one, is B z
    B = directions * factor if factor.ndim == 1 else directions @ factor
    B = B / np.maximum(np.sqrt(np.sum(B**2, axis=1, keepdims=True)), 1e-300)
    halves = {False: np.zeros((0, d)), True: np.zeros((0, d))}
    known = {False: np.zeros((2, 0)), True: np.zeros((2, 0))}
    size, wide = min(thresholds.FIRST_DRAWS, most_draws) // 2, False
    while True:
        new = draw_pairs(size, d, rng, wide)
        moved = new * factor if factor.ndim == 1 else new @ factor.T
        found = np.asarray(log_density(np.concatenate([mean + moved, mean - moved])))
        halves[wide] = np.concatenate([halves[wide], new])
        known[wide] = np.concatenate([known[wide], found.reshape(2, -1)], axis=1)
        values = np.concatenate([known[False], known[True]], axis=1).ravel()
        shape = _weigh(values, halves, mean, factor, B, read)
        count = 2 * sum(map(len, halves.values()))
        if shape is None or shape.clearly_off or (shape.reliable and shape.clearly_right):
            return shape
        if shape.off and shape.effective < thresholds.HOPELESS * count:
            return shape
        size = min((thresholds.GROWTH - 1) * count, most_draws - count) // 2
        if size < 1:
            return shape
        wide = not shape.reliable or len(halves[True]) > 0


def _weigh(
    values: np.ndarray,
    halves: dict[bool, np.ndarray],
    mean: np.ndarray,
    factor: np.ndarray,
    B: np.ndarray,
    read: Reading,
) -> Shape | None:
    z, log_q, log_g = together(halves[False], halves[True])
    ratios = np.where(np.isfinite(values), values, -np.inf) - log_g
    if not np.any(np.isfinite(ratios)):
        return None
    smoothed = smooth_weights(ratios)
    u = np.exp(log_q - log_g)
    draws = mean + (z * factor if factor.ndim == 1 else z @ factor.T)
    x = z @ B.T
    ones = np.ones_like(x)
    # under q all of these have mean zero; u carries them to the distribution of the draws
    length = (np.sum(z**2, axis=1) - z.shape[1]) / np.sqrt(2.0 * z.shape[1])
    controls = np.stack(
        [u[:, None] * x, u[:, None] * (x**2 - 1.0), (u * length)[:, None] * ones, (u - 1.0)[:, None] * ones], 2
    )
    difference = compare_moments(read(draws), smoothed.weights, u / u.sum(), controls)
    return Shape(*difference, smoothed.k, smoothed.effective, len(z), draws, smoothed.weights)
