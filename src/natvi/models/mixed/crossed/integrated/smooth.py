"""Weights of points whose moments are those of a smooth density through the points, without the points' own noise.

A few hundred weighted points leave some percent of noise in means and sds. The log-density that they show is smooth,
though: a quadratic function of sds, correlations and dispersion, with linear radial functions for what is left, says
what lies between them. Thousands of draws weighted by that are free, and the weights of the points are tilted until
means, covariances and the shares below quantiles agree with theirs (calibration, as for surveys).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from natvi.models.mixed.marginal.proposal import Mixture, draw_mixture
from natvi.special import expit

DRAWS, SEED = 32_768, 7
DEPTH = 20.0  # nats below the top, from which points say nothing
FAR = 12.0  # sds
LIGHTEST = 1e-6  # of the largest weight, from which a point is left as it is
MOST_COORDINATES = 4  # with more the points are too far apart
MOST_LOCAL = 64  # points that a radial function looks at, where there are many
FIRM, SMALL, STEPS, HALVINGS = 1e-9, 1e-7, 40, 30
LEAST_PER_MOMENT = 5.0  # effective points
MOST_STEPS, SOFTNESS = 9, 0.15  # quantiles of each coordinate; in sds, of the step there


class Smoothed(NamedTuple):
    """Weights that agree with the smooth density, and by how many nats that misses points it has not seen."""

    weights: Float[np.ndarray, " m"]
    error: float


def smooth(
    points: Float[np.ndarray, "m h"],
    log_p: Float[np.ndarray, " m"],
    weights: Float[np.ndarray, " m"],
    parts: Mixture,
    log_sds: list[int],
) -> Smoothed | None:
    """Tilt the weights; None where there are too few points, or too many coordinates.

    Args:
        points: Of the hyper-parameters.
        log_p: Their log-density; not finite where it is not known.
        weights: Of the points.
        parts: Where the points came from.
        log_sds: Which coordinates are minus logarithms of sds.
    """
    h, effective = points.shape[1], 1.0 / np.sum(weights**2)
    room = effective / LEAST_PER_MOMENT - (h + h * (h + 1) // 2)  # moments besides means and covariances
    if h > MOST_COORDINATES or room < 0:
        return None
    t, volume = _coordinates(points, log_sds)
    centre = weights @ t
    scale = np.sqrt(weights @ (t - centre) ** 2)
    if not np.all(scale > 0):
        return None
    t, f = (t - centre) / scale, log_p + volume
    usable = np.isfinite(f) & np.all(np.isfinite(t), axis=1)
    usable &= f > np.max(f[usable], initial=-np.inf) - DEPTH
    draws, log_q = draw_mixture(parts, DRAWS, SEED)
    other, volume = _coordinates(draws, log_sds)
    other = (other - centre) / scale
    near = np.all(np.abs(other) < FAR, axis=1)
    half = usable & (np.arange(len(f)) % 2 == 0)
    check = usable & ~half & (weights > 0)
    if half.sum() <= 2 * h * (h + 3) or not np.any(check):
        return None
    missed = _density(t, f, half, t[check]) - f[check]
    share = weights[check] / weights[check].sum()
    log_w = _density(t, f, usable, other[near]) - volume[near] - log_q[near]
    w = np.exp(log_w - np.max(log_w))
    w /= w.sum()
    knots = _quantiles(other[near], w, int(min(MOST_STEPS, room // h)))
    goal = w @ _moments(other[near], knots)
    tilted = _tilt(weights, _moments(t, knots) - goal)
    return None if tilted is None else Smoothed(tilted, float(np.sqrt(share @ (missed - share @ missed) ** 2)))


def _coordinates(points: np.ndarray, log_sds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return sds in place of their logarithms, in which the density is smooth down to zero, and log |d point / d t|."""
    t = points.copy()
    with np.errstate(over="ignore"):
        t[:, log_sds] = np.exp(-points[:, log_sds])
    return t, np.sum(points[:, log_sds], axis=1)


def _quadratic(t: np.ndarray) -> np.ndarray:
    i, j = np.triu_indices(t.shape[1])
    return np.column_stack([np.ones(len(t)), t, t[:, i] * t[:, j]])


def _quantiles(t: np.ndarray, weights: np.ndarray, count: int) -> Float[np.ndarray, "k h"]:
    """Return evenly spaced quantiles of every coordinate."""
    at, found = np.arange(1, count + 1) / (count + 1), np.empty((count, t.shape[1]))
    for k, column in enumerate(t.T):
        order = np.argsort(column)
        found[:, k] = np.interp(at, np.cumsum(weights[order]), column[order])
    return found


def _moments(t: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return first and second powers and products, and soft steps at the knots."""
    steps = expit((t[:, None] - knots) / SOFTNESS).reshape(len(t), -1)
    return np.column_stack([_quadratic(t)[:, 1:], steps])


def _density(t: np.ndarray, f: np.ndarray, use: Bool[np.ndarray, " m"], at: np.ndarray) -> np.ndarray:
    """Return at some points what the others say: a quadratic function, and linear radial functions for the rest."""
    from scipy.interpolate import RBFInterpolator

    Q, own = _quadratic(t[use]), f[use]
    root = np.exp(np.maximum((own - own.max()) / 8.0, -100.0))
    coefficients = np.linalg.lstsq(Q * root[:, None], own * root, rcond=None)[0]
    local = MOST_LOCAL if len(own) > 10 * MOST_LOCAL else None
    rest = RBFInterpolator(t[use], own - Q @ coefficients, kernel="linear", degree=0, neighbors=local)
    return _quadratic(at) @ coefficients + rest(at)


def _tilt(weights: np.ndarray, moments: np.ndarray) -> np.ndarray | None:
    """Return weights times exp(lambda' moments), under which the moments are zero: Newton's method in lambda."""
    keep = weights > LIGHTEST * np.max(weights)
    log_w, G = np.log(weights[keep]), moments[keep]
    scale = np.maximum(np.sqrt(weights[keep] @ G**2), 1e-12)
    G, lam = G / scale, np.zeros(moments.shape[1])

    def look(lam: np.ndarray) -> tuple[float, np.ndarray]:
        logs = log_w + G @ lam
        top = np.max(logs)
        raw = np.exp(logs - top)
        return float(top + np.log(raw.sum())), raw / raw.sum()

    value, w = look(lam)
    for _ in range(STEPS):
        slope = w @ G
        if np.max(np.abs(slope)) < SMALL:
            found = np.zeros_like(weights)
            found[keep] = w
            return found
        curve = (G * w[:, None]).T @ G - np.outer(slope, slope)
        move = -np.linalg.solve(curve + FIRM * np.eye(len(lam)), slope)
        for _ in range(HALVINGS):
            new, tried = look(lam + move)
            if new <= value + 1e-4 * slope @ move:
                break
            move = 0.5 * move
        else:
            return None
        lam, value, w = lam + move, new, tried
    return None
