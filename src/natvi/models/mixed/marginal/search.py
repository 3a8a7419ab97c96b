"""Where the exact marginal of the shared coordinates has its mass: its mode, and plateaus towards sds of zero.

An sd that may be zero has a plateau: log p(y, theta_g) hardly changes with omega_kk once the sd is small. It is low
but wide, the prior alone ends it, and a look from the mode does not see it: other coordinates have other values there.
So the mode of the others is found with the sd held at a small value, and the way out from there is looked at. Where
several sds may be zero there is one more plateau, on which all of them are.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from natvi.models.mixed.marginal.chart import Chart, Plain, carry_over
from natvi.models.mixed.marginal.proposal import HasValues, Mixture, Proposal

MOST_STEPS, HALVINGS = 12, 6
DIFFERENCE = 0.03  # in sds, for second derivatives from differences of gradients, in which quadrature leaves some noise
STALE = 0.25  # sds from where the curvature was taken, from which it is taken anew
FLATTEST = 0.01  # of a curvature, relative to that of the last step
LONGEST_STEP = 4.0  # in sds
NEAR_MODE = 0.05  # in sds
SMALL = 3.0  # logarithms by which the sd at the mode is made smaller, to look for a plateau
STEPS = np.array([-2.0, -1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])  # of omega_kk, from there
HOPELESS, HOPELESS_EACH = 30.0, 3.0  # nats below the mode, and per coordinate
PLAIN = Plain()
LITTLE, LEAST_SHARE, MOST_SHARE = 1e-3, 0.1, 0.5  # of the mass; of the draws


class Mode(NamedTuple):
    """A mode with its curvature, as a covariance, and the values on the way."""

    centre: np.ndarray
    covariance: np.ndarray
    trace: list[float]
    converged: bool

    @property
    def top(self) -> float:
        """The log-density at the last point evaluated."""
        return self.trace[-1]


Scores = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@runtime_checkable
class HasScores(HasValues, Protocol):
    """A density with its derivatives."""

    def scores(self, points: Float[np.ndarray, "m g"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m g"]]:
        """Return log-densities and gradients."""
        ...


def find_mode(
    scores: Scores, start: Float[np.ndarray, " g"], factor: Float[np.ndarray, "g m"], difference: float = DIFFERENCE
) -> Mode:
    """Climb by Newton's method in the space that the columns of the factor span.

    The Hessian is taken from differences of gradients, and kept for further steps as long as these halve the distance
    to the mode. All is done in units of the last curvature: with x + L u the Hessian in u is close to -I from the
    second one on. An eigenvalue that is not positive, or very small, is replaced, so that every step goes uphill.

    Args:
        scores: Points to log-densities and gradients.
        start: Where to start.
        factor: A rough factor L of the covariance; coordinates whose row is zero stay as they are.
        difference: In sds, for second derivatives from differences of gradients.

    Returns:
        The mode.
    """
    x, L, m = start, factor, factor.shape[1]
    trace: list[float] = []
    steps = np.concatenate([np.zeros((1, m)), difference * np.eye(m)])
    for _ in range(MOST_STEPS):
        values, gradients = scores(x + steps @ L.T)
        trace.append(float(values[0]))
        whitened = gradients @ L
        if not np.all(np.isfinite(whitened)):
            return Mode(x, L @ L.T, trace, False)
        hess = (whitened[1:] - whitened[0]) / difference
        lam, V = np.linalg.eigh(-0.5 * (hess + hess.T))
        lam = np.maximum(np.abs(lam), FLATTEST)
        L = L @ V / np.sqrt(lam)
        value, gradient, before, moved = values[0], gradients[0], np.inf, 0.0
        while True:
            move = L.T @ gradient
            length = float(np.sqrt(np.sum(move**2)))
            if length < NEAR_MODE and moved < STALE:
                return Mode(x + L @ move, L @ L.T, trace, True)
            if length < NEAR_MODE or not length < 0.5 * before:
                break  # the curvature here is wanted
            part = min(1.0, LONGEST_STEP / length)
            found = _reach(scores, x, part * (L @ move), value)
            if found is None:
                return Mode(x, L @ L.T, trace, length < 0.5)
            share, value, gradient = found
            x, moved = x + share * part * (L @ move), moved + share * part * length
            before = length if share == 1.0 else 0.0
            trace.append(value)
    return Mode(x, L @ L.T, trace, False)


def _reach(
    scores: Scores, x: np.ndarray, direction: np.ndarray, value: float
) -> tuple[float, float, np.ndarray] | None:
    """Go all the way, or the best part of it; return the share, value and gradient there, or None if nothing rises."""
    for tries in (np.ones(1), 0.5 ** np.arange(1, HALVINGS)):
        reached, gradients = scores(x + tries[:, None] * direction)
        reached = np.where(np.isfinite(reached), reached, -np.inf)
        best = int(np.argmax(reached))
        if reached[best] > value:
            return float(tries[best]), float(reached[best]), gradients[best]
    return None


def find_plateaus(
    density: HasScores,
    mode: np.ndarray,
    covariance: np.ndarray,
    log_sds: list[int],
    slanted: list[int],
    dof: float,
    chart: Chart = PLAIN,
    difference: float = DIFFERENCE,
) -> Mixture:
    """Return a component for every log sd with a plateau towards zero that has some mass, and one for all of them.

    Args:
        density: The exact marginal.
        mode: A point theta_g near the mode.
        covariance: Of theta_g there.
        log_sds: Positions of omega_kk.
        slanted: Positions of omega_lk; where an sd is small they are zero but for their prior.
        dof: Degrees of freedom of the components.
        chart: Of the components: plain in omega.
        difference: As in `find_mode`.

    Returns:
        Shares of the draws and components; what is left is for the mode.
    """
    if not log_sds:
        return []
    g = len(mode)
    starts = np.repeat(mode[None], len(log_sds), axis=0)
    starts[np.arange(len(log_sds)), log_sds] += SMALL
    starts[:, slanted] = 0.0
    values = density.values(np.concatenate([mode[None], starts]))
    sign, log_det = np.linalg.slogdet(covariance)
    top = values[0] + 0.5 * log_det + 0.5 * g * np.log(2 * np.pi) if sign > 0 else values[0]
    found: Mixture = []
    low: list[int] = []  # which of the log sds have a plateau
    for k, at in enumerate(log_sds):
        if values[0] - values[k + 1] < HOPELESS + HOPELESS_EACH * g:
            part = _look_out(density, starts[k], covariance, [at], dof, top, chart, difference)
            if part is not None:
                found.append(part)
                low.append(at)
    if len(low) > 1:
        corner = mode.copy()
        corner[low] += SMALL
        corner[slanted] = 0.0
        part = _look_out(density, corner, covariance, low, dof, top, chart, difference)
        found += [] if part is None else [part]
    # each of several gets less: half of the draws stay with the mode
    total = sum(share for share, _ in found)
    return [(share * min(1.0, MOST_SHARE / total), part) for share, part in found]


def _look_out(
    density: HasScores,
    start: np.ndarray,
    covariance: np.ndarray,
    held: list[int],
    dof: float,
    top: float,
    chart: Chart,
    difference: float,
) -> tuple[float, Proposal] | None:
    """Find the mode of the others with some omega_kk held, look along each of these, and weigh what is there."""
    g, h = len(start), len(held)
    free = np.array([k for k in range(g) if k not in held], dtype=int)  # none in a model of one parameter
    factor = np.zeros((g, g - h))
    factor[free] = np.linalg.cholesky(covariance[np.ix_(free, free)])
    mode = find_mode(density.scores, start, factor, difference)
    ways = mode.centre + STEPS[:, None, None] * np.eye(g)[held]
    values = density.values(ways.reshape(-1, g)).reshape(len(STEPS), h)
    inner = mode.covariance[np.ix_(free, free)]
    sign, log_det = np.linalg.slogdet(inner)
    if sign <= 0 or not np.isfinite(mode.top):
        return None
    heights = np.exp(np.clip(np.where(np.isfinite(values), values, -np.inf) - mode.top, -700.0, 50.0))
    x, y = np.insert(STEPS, 2, 0.0), np.insert(heights, 2, 1.0, axis=0)
    lengths = np.trapezoid(y, x, axis=0)
    log_mass = mode.top + 0.5 * log_det + 0.5 * (g - h) * np.log(2 * np.pi) + float(np.sum(np.log(lengths)))
    mass = 1.0 / (1.0 + np.exp(np.clip(top - log_mass, -700.0, 700.0)))
    if mass < LITTLE:
        return None
    sides = np.ones((2, g))
    sides[0, :h] = 1.5
    # the spread of what lies further out, for a half normal
    out, y = x[x >= 0], y[x >= 0]
    sides[1, :h] = np.sqrt(np.trapezoid(out[:, None] ** 2 * y, out, axis=0) / np.trapezoid(y, out, axis=0))
    inside = np.zeros((g, g - h))
    inside[free] = np.linalg.cholesky(inner)
    centre, inside = carry_over(PLAIN, chart, mode.centre, inside)
    full = np.concatenate([np.eye(g)[:, held], inside], axis=1)
    return max(LEAST_SHARE, mass), Proposal(centre, full, np.maximum(sides, 0.5), dof, chart)
