"""Proposals for importance sampling of the shared coordinates: t distributions with sides of their own, and mixtures.

x = centre + L u, u_k = s_k^- v_k or s_k^+ v_k by the sign of v_k, v ~ t_nu(0, I), after Geweke (1989), but with a
density without a jump at zero: side + is taken with probability s^+ / (s^- + s^+), so that

    log q(x) = log t_nu(v) + sum_k log(2 / (s_k^- + s_k^+)) - log |L|.

x is theta_g on a `Chart`; densities are always those of theta_g. L is lower triangular with
the lopsided coordinates first: moving along a column of L moves one of them, and the others as they follow on average.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from natvi.models.mixed.marginal.chart import Chart, Plain
from natvi.quadrature.sobol import sobol
from natvi.special import gammaincinv, gammaln, ndtri

DISTANCES = np.array([0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0])
LEAST_PER_COORDINATE = 8  # points, for moments to be matched
NARROWEST, WIDEST = 0.6, 40.0  # sides, in sds of the curvature at the mode


@runtime_checkable
class HasValues(Protocol):
    """A density that can be looked at."""

    def values(self, points: Float[np.ndarray, "m g"]) -> Float[np.ndarray, " m"]:
        """Return the log-density at every point."""
        ...


class Proposal(NamedTuple):
    """Centre, factor L, sides `(2, g)`, degrees of freedom, and the chart of x."""

    centre: np.ndarray
    factor: np.ndarray  # (g, g): rows in the order of x, columns in the order of u
    sides: np.ndarray
    dof: float
    chart: Chart = Plain()

    def place(self, points: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s g"]:
        """Turn points of the unit cube, one dimension more than theta_g has, into draws of theta_g."""
        g = len(self.centre)
        left, right = self.sides
        p, share = points[:, :g], left / (left + right)
        # one uniform number decides the side and how far out
        half = np.where(p < share, p / share, 1.0 + (p - share) / (1.0 - share)) / 2.0
        v = ndtri(np.clip(half, 1e-15, 1 - 1e-15))
        v = _matched(v, np.all(self.sides == 1.0, axis=0))
        v *= np.sqrt(self.dof / (2.0 * gammaincinv(self.dof / 2.0, points[:, g:])))
        return self.chart.to_shared(self.centre + (v * np.where(v < 0, left, right)) @ self.factor.T)

    def log_density(self, shared: Float[np.ndarray, "s g"]) -> Float[np.ndarray, " s"]:
        """Return log q of theta_g."""
        x = self.chart.from_shared(shared)
        g, nu = x.shape[1], self.dof
        constant = gammaln((nu + g) / 2) - gammaln(nu / 2) - 0.5 * g * np.log(nu * np.pi)
        _, log_scale = np.linalg.slogdet(self.factor)
        with np.errstate(over="ignore", invalid="ignore"):  # points out of range
            u = np.linalg.solve(self.factor, (x - self.centre).T).T
            v = u / np.where(u < 0, *self.sides)
            kernel = -0.5 * (nu + g) * np.log1p(np.sum(v**2, axis=1) / nu)
            log_q = constant + kernel + np.sum(np.log(2.0 / self.sides.sum(axis=0))) - log_scale
            return log_q - self.chart.log_volume(x)


def _matched(v: Float[np.ndarray, "s g"], even: Bool[np.ndarray, " g"]) -> Float[np.ndarray, "s g"]:
    """Give the coordinates with even sides the moments they stand for: mean zero, variance one, no correlation.

    In many dimensions points that are spread evenly still have correlations by chance, which would be those of the
    answer. What is left is the noise of the weights.
    """
    if len(v) < LEAST_PER_COORDINATE * v.shape[1] or not np.any(even):
        return v
    others = np.column_stack([np.ones(len(v)), v[:, ~even]])
    rest = v[:, even] - others @ np.linalg.lstsq(others, v[:, even], rcond=None)[0]
    lam, V = np.linalg.eigh(rest.T @ rest / len(v))
    if lam[0] < 0.1:  # too few points
        return v
    matched = v.copy()
    matched[:, even] = rest @ (V / np.sqrt(lam)) @ V.T
    return matched


Mixture = list[tuple[float, Proposal]]  # shares, which sum to one, and components


def draw_mixture(parts: Mixture, num_draws: int, seed: int) -> tuple[Float[np.ndarray, "s g"], Float[np.ndarray, " s"]]:
    """Return draws of theta_g and their log density, from a Sobol sequence that is shifted at random.

    Args:
        parts: The mixture.
        num_draws: A power of two.
        seed: Of the shift.

    Returns:
        Draws, each component its share of them, and log q of the mixture.
    """
    g = len(parts[0][1].centre)
    shift = np.random.default_rng(seed).uniform(size=g + 1)
    points = (sobol(g + 1, num_draws) + shift) % 1.0
    points = np.clip(points, 1e-12, 1 - 1e-12)
    # by turns, in the golden ratio: every component sees points from the whole sequence
    turn = (np.arange(num_draws) * 0.6180339887498949) % 1.0
    edges = np.concatenate([[0.0], np.cumsum([share for share, _ in parts])])
    edges[-1] = 1.0
    draws = np.empty((num_draws, g))
    for k, (_, part) in enumerate(parts):
        own = (turn >= edges[k]) & (turn < edges[k + 1])
        draws[own] = part.place(points[own])
    logs = [np.log(share) + part.log_density(draws) for share, part in parts]
    with np.errstate(invalid="ignore"):
        return draws, np.logaddexp.reduce(logs, axis=0)


def ordered_factor(covariance: Float[np.ndarray, "g g"], first: list[int]) -> Float[np.ndarray, "g g"]:
    """Return L with L L' the covariance, triangular once the coordinates `first` are put in front."""
    g = len(covariance)
    order = np.array([*first, *(k for k in range(g) if k not in first)])
    factor = np.empty_like(covariance)
    factor[order] = np.linalg.cholesky(covariance[np.ix_(order, order)])
    return factor


def propose(
    density: HasValues,
    centre: np.ndarray,
    covariance: np.ndarray,
    lopsided: list[int],
    dof: float,
    chart: Chart,
) -> Proposal:
    """Look from the mode along the lopsided axes, both ways, and give each side its scale; all is on the chart.

    It is the scale of a normal density that falls as far: the largest over drops of 1/2, 2 and 4.5 nats, which are one,
    two and three sds.
    """
    factor, sides = ordered_factor(covariance, lopsided), np.ones((2, len(centre)))
    if not lopsided:
        return Proposal(centre, factor, sides, dof, chart)
    steps = np.concatenate([[0.0], -DISTANCES, DISTANCES])
    x = (centre + steps[:, None, None] * factor.T[: len(lopsided)]).reshape(-1, len(centre))
    values = density.values(chart.to_shared(x)) + chart.log_volume(x)
    values = np.where(np.isfinite(values), values, -np.inf).reshape(len(steps), -1)
    drops = (values[0] - values[1:]).reshape(2, len(DISTANCES), -1)
    for side in range(2):
        for axis in range(len(lopsided)):
            sides[side, axis] = _side(drops[side, :, axis])
    return Proposal(centre, factor, np.clip(sides, NARROWEST, WIDEST), dof, chart)


def _side(drops: Float[np.ndarray, " k"]) -> float:
    """Return the scale from drops at the distances."""
    sds = np.sqrt(2.0 * np.maximum(np.where(np.isfinite(drops), drops, np.inf), 0.0))
    sds = np.maximum.accumulate(np.concatenate([[0.0], np.minimum(sds, 1e3)]))
    reached = np.interp([1.0, 2.0, 3.0], sds + 1e-9 * np.arange(len(sds)), np.concatenate([[0.0], DISTANCES]))
    return float(np.max(reached / [1.0, 2.0, 3.0]))


def refit(
    shared: Float[np.ndarray, "s g"], weights: Float[np.ndarray, " s"], lopsided: list[int], dof: float, chart: Chart
) -> Proposal:
    """Return a proposal with the moments of weighted draws, side by side."""
    x = chart.from_shared(shared)
    centre = weights @ x
    errors = x - centre
    covariance = (errors * weights[:, None]).T @ errors
    # few effective draws underestimate the spread
    covariance *= 1.0 + 2.0 * len(centre) * np.sum(weights**2)
    factor = ordered_factor(covariance + 1e-12 * np.diag(np.diag(covariance)), lopsided)
    u = np.linalg.solve(factor, errors.T).T
    sides = np.ones((2, len(centre)))
    for side, inside in enumerate((u < 0, u > 0)):
        mass = weights @ inside
        sides[side] = np.sqrt((weights @ (inside * u**2)) / np.maximum(mass, 1e-12))
    return Proposal(centre, factor, np.clip(sides, 0.4, 3.0), dof, chart)
