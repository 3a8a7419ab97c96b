"""A crossed model whose posterior is a mixture of Gaussians, one for each weighted point of the hyper-parameters."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from natvi.metrics.psis import resample
from natvi.models.mixed.crossed.posterior import CrossedFit
from natvi.models.regression.tables import interval_table, weighted_table
from natvi.special import ndtr

HALVINGS = 60


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegratedFit(CrossedFit):
    """The mixture.

    Attributes:
        hyper: Points of dispersion and omega `(m, h)`.
        weights: Of the points; they sum to one.
        beta: Means of the coefficients `(m, p)`.
        beta_covariance: Their covariances `(m, p, p)`.
        drawn_beta: Draws of the coefficients, as many from each Gaussian `(m d, p)`.
        drawn_effects: Draws of all effects, likewise `(m d, u)`.
        pareto_k: The tail of the weights.
    """

    hyper: np.ndarray
    weights: np.ndarray
    beta: np.ndarray
    beta_covariance: np.ndarray
    drawn_beta: np.ndarray
    drawn_effects: np.ndarray
    pareto_k: float

    @property
    def effective(self) -> float:
        """How many equally weighted points the weighted ones are worth."""
        return float(1.0 / np.sum(self.weights**2))

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        points = (
            f"{len(self.weights):,} weighted points of {', '.join(self.shared_names()[len(self.fixed_names) :])}, as "
            f"good as {self.effective:,.0f}; a Gaussian of all effects at each"
        )
        return (*super().headline, ("points", points))

    def shared_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the shared coordinates: within the Gaussians, and between them."""
        whole = np.concatenate([self.beta, self.hyper], axis=1)
        mean, p = self.weights @ whole, self.beta.shape[1]
        errors = whole - mean
        covariance = (errors * self.weights[:, None]).T @ errors
        covariance[:p, :p] += np.tensordot(self.weights, self.beta_covariance, axes=1)
        return mean, covariance

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the fixed effects and the variance components."""
        return {
            "coefficients": self.fixed_table(self.weights, prob),
            "variance_components": self.component_table(self.weights, prob),
        }

    def fixed_table(self, weights: np.ndarray, prob: float) -> pd.DataFrame:
        """Return mean, sd and interval of the coefficients: exact for the mixture."""
        M = np.eye(len(self.fixed_names)) if self.coordinates.fixed is None else self.coordinates.fixed
        means = self.beta @ M.T
        variances = np.einsum("ka,mab,kb->mk", M, self.beta_covariance, M)
        mean = weights @ means
        sd = np.sqrt(weights @ (variances + (means - mean) ** 2))
        tail = 0.5 - prob / 2
        ends = [mixture_quantile(means, np.sqrt(variances), weights, at) for at in (tail, 1 - tail)]
        return interval_table(list(self.fixed_names), (mean, sd, *ends), prob)

    def component_table(self, weights: np.ndarray, prob: float) -> pd.DataFrame:
        """Return mean, sd and interval of sds, correlations and dispersion."""
        shared = np.concatenate([np.zeros_like(self.beta), self.hyper], axis=1)
        return weighted_table(self.component_names(), self.component_draws(shared), weights, prob)

    def joint_draws(self, num_samples: int, seed: int, keep_effects: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw all effects `(s, u)` and the shared coordinates `(s, g)`, equally weighted."""
        each = len(self.drawn_beta) // len(self.weights)
        at = resample(np.repeat(self.weights / each, each), num_samples, np.random.default_rng(seed))
        shared = np.concatenate([self.drawn_beta[at], self.hyper[at // each]], axis=1)
        return self.drawn_effects[at] if keep_effects else self.drawn_effects[:0], shared

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt."""
        arrays, document = super().store()
        own = {
            "points_hyper": self.hyper,
            "draws_weights": self.weights,
            "points_beta": self.beta,
            "points_covariance": self.beta_covariance,
            "draws_beta": self.drawn_beta,
            "draws_effects": self.drawn_effects,
        }
        return {**arrays, **own}, {**document, "integrated": {"pareto_k": self.pareto_k}}


def mixture_quantile(means: np.ndarray, sds: np.ndarray, weights: np.ndarray, prob: float) -> np.ndarray:
    """Return a quantile of each column's mixture of normals, by halving.

    Example:
        >>> one, two = np.array([[0.0], [0.0]]), np.ones((2, 1))
        >>> mixture_quantile(one, two, np.array([0.5, 0.5]), 0.975).round(3).tolist()
        [1.96]
    """
    low, high = np.min(means - 40 * sds, axis=0), np.max(means + 40 * sds, axis=0)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = weights @ ndtr((middle - means) / sds) < prob
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
