"""The shape check: how far a Gaussian q is from the exact density p, in means and sds of what the user reads.

Weighted draws give the moments of p, the same draws those of q, and what is known about q exactly, E x = 0 and
E (x^2 - 1) = 0 of its standardised coordinates, takes most of the noise away (control variates). Every estimate comes
with its standard error, so that few draws decide what is clear and more are taken only near a threshold.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natvi.judge import thresholds
from natvi.judge.proposals import Points, draw_pairs, together
from natvi.metrics.psis import smooth_weights
from natvi.special import ndtri


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
    def far_off(self) -> bool:
        """Whether a mean or an sd is off by more than twice as much, which few draws with rough errors can say."""
        return self.effective >= thresholds.LEAST_SURE and self._beyond(-1.0, 2.0)

    @property
    def clearly_right(self) -> bool:
        """Whether no mean and no sd can be off, whatever the noise."""
        return self.effective >= thresholds.LEAST_SURE and not self._beyond(1.0)

    def _beyond(self, sign: float, times: float = 1.0) -> bool:
        errors = -sign * float(ndtri(thresholds.DOUBT / max(2 * len(self.shift), 1)))
        moved = np.abs(self.shift) + errors * self.shift_error > times * thresholds.SHIFT
        changed = np.abs(self.change) + errors * self.change_error > times * thresholds.CHANGE
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
    w, u, known = len(values) * weights[:, None], len(values) * plain[:, None], _Controls(controls)
    mean_p, _ = known.better(weights @ values, w * (values - weights @ values))
    mean_q, _ = known.better(plain @ values, u * (values - plain @ values))
    # about the better means: about those of the weights the variances would be too small by the error of these
    var_p, var_q = weights @ (values - mean_p) ** 2, plain @ (values - mean_q) ** 2
    # no spread at all, as of a value that is beyond the range of numbers: nothing can be compared
    with np.errstate(divide="ignore", invalid="ignore"):
        first = (w * (values - mean_p) - u * (values - mean_q)) / np.sqrt(var_p)
        second = 0.5 * (w * ((values - mean_p) ** 2 / var_p - 1.0) - u * ((values - mean_q) ** 2 / var_q - 1.0))
        shift = (weights @ values - plain @ values) / np.sqrt(var_p)
        change = 0.5 * np.log(var_p / var_q)
    return Difference(*known.better(shift, first - first.mean(axis=0)), *known.better(change, second))


class _Controls:
    """Controls with expectation zero, for every column of values; a draw and its mirror image count as one."""

    def __init__(self, controls: Float[np.ndarray, "s k c"]) -> None:
        half = len(controls) // 2
        h = np.moveaxis(0.5 * (controls[:half] + controls[half:]), 1, 0)
        self.sound = np.all(np.isfinite(h), axis=(1, 2))
        h = np.where(self.sound[:, None, None], h, 0.0)
        middle = h.mean(axis=1)
        basis, sizes, V = np.linalg.svd(h - middle[:, None], full_matrices=False)
        kept = sizes > 1e-10 * np.maximum(np.max(sizes, axis=1, keepdims=True, initial=0.0), 1e-300)
        self.basis = basis * kept[:, None]
        # -middle' times the slopes of y on the controls is `gain` of the coordinates of y in the basis
        self.gain = np.where(kept, -np.einsum("kcj,kj->kc", V, middle) / np.where(kept, sizes, 1.0), 0.0)
        # a draw on which a slope rests has too small a residual; it is given back (HC3, MacKinnon and White 1985)
        self.leverage = np.minimum(1.0 / half + np.sum(self.basis**2, axis=2), 0.9)

    def better(
        self, estimates: Float[np.ndarray, " k"], influence: Float[np.ndarray, "s k"]
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Return estimates with less noise, and their standard errors."""
        half = len(influence) // 2
        y = 0.5 * (influence[:half] + influence[half:]).T
        sound = self.sound & np.all(np.isfinite(y), axis=1)
        y = np.where(sound[:, None], y, 0.0)
        y = y - y.mean(axis=1, keepdims=True)
        inside = np.einsum("khc,kh->kc", self.basis, y)
        rest = (y - np.einsum("khc,kc->kh", self.basis, inside)) / (1.0 - self.leverage)
        more, error = np.sum(self.gain * inside, axis=1), np.sqrt(np.sum(rest**2, axis=1)) / half
        return estimates + np.where(sound, more, np.nan), np.where(sound, error, np.inf)


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

    Half of the draws come from the Gaussian, half from a wider distribution, so that the weights have no heavy tail
    where only the tails of the Gaussian are wrong. While it is not clear on which side of the thresholds the fit is,
    four times as many are taken.

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
    narrow, wide, known, shape = np.zeros((0, d)), np.zeros((0, d)), np.zeros((2, 0, 2)), None
    size = max(min(thresholds.FIRST_DRAWS, most_draws) // 4, 1)
    while True:
        new = [draw_pairs(size, d, rng, flag) for flag in (False, True)]
        first = min(thresholds.FIRST_LOOK // 4, size) if not len(narrow) else size
        for part in (slice(0, first), slice(first, size)):
            if part.start == part.stop:
                break
            z = np.stack([draws[part] for draws in new], axis=1).reshape(-1, d)
            moved = z * factor if factor.ndim == 1 else z @ factor.T
            found = np.asarray(log_density(np.concatenate([mean + moved, mean - moved])))
            narrow, wide = np.concatenate([narrow, new[0][part]]), np.concatenate([wide, new[1][part]])
            known = np.concatenate([known, found.reshape(2, -1, 2)], axis=1)
            # in the order of `together`: both kinds of draws, then their mirror images
            shape = weigh(known.swapaxes(1, 2).ravel(), together(narrow, wide), mean, factor, B, read)
            if shape is None or shape.far_off:
                return shape
        assert shape is not None
        count = 4 * len(narrow)
        if shape.clearly_off or (shape.reliable and shape.clearly_right):
            return shape
        hopeless = shape.off and shape.effective < thresholds.HOPELESS * count
        size = min((thresholds.GROWTH - 1) * count, most_draws - count) // 4
        if hopeless or size < 1:
            return shape


def weigh(
    values: np.ndarray,
    points: Points,
    mean: np.ndarray,
    factor: np.ndarray,
    B: np.ndarray,
    read: Reading,
) -> Shape | None:
    """Hold N(mean, C C') against an exact density whose values at draws are known.

    Args:
        values: Log of the density at the points.
        points: As `together` gives them.
        mean: Of the Gaussian.
        factor: C, or the sds of independent coordinates.
        B: For everything read, the combination of whitened coordinates with which it moves most, of length one.
        read: From points to what the user reads.

    Returns:
        What was found; None where the density is nowhere finite.
    """
    z, log_q, log_g = points
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
