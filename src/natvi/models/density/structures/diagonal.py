"""A Gaussian with independent coordinates that climbs: the last resort where numbers are too many."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.models.density.evaluator import Evaluator, Looked


class Diagonal(NamedTuple):
    """N(mean, diag(sds^2))."""

    mean: Float[np.ndarray, " d"]
    sds: Float[np.ndarray, " d"]

    @property
    def structure(self) -> str:
        """The name of the structure."""
        return "diagonal"

    @property
    def log_det(self) -> float:
        """Log |det C|."""
        return float(np.sum(np.log(self.sds)))

    def at(self, z: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return mu + C z."""
        return self.mean + self.spread(z)

    def traced_at(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return mu + C z of one z, inside a program of JAX."""
        return jnp.asarray(self.mean) + jnp.asarray(self.sds) * z

    def spread(self, z: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return C z."""
        return z * self.sds

    def whiten(self, gradients: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return C' g of every gradient."""
        return gradients * self.sds

    def coordinates(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return z with theta = mu + C z."""
        return (theta - self.mean) / self.sds

    def distance(self, mean: Float[np.ndarray, " d"]) -> float:
        """Return how many sds away another mean is."""
        return float(np.linalg.norm((mean - self.mean) / self.sds))

    def entropy(self) -> float:
        """Return the entropy."""
        return self.log_det + 0.5 * len(self.mean) * (1 + np.log(2 * np.pi))

    def expect(self, looked: Looked, z: Float[np.ndarray, "s d"]) -> "DiagonalExpectation":
        """Return bound, gradient and curvature on the points."""
        bound = float(np.mean(looked.values)) + self.entropy()
        u = self.whiten(looked.gradients)
        if not (np.isfinite(bound) and np.all(np.isfinite(u))):
            return DiagonalExpectation(-np.inf, np.zeros(0), np.zeros(0))
        return DiagonalExpectation(bound, u.mean(axis=0), -np.mean(u * z, axis=0))

    def moved(
        self, now: "DiagonalExpectation", reach: float, ratio: float, mean: bool, spread: bool
    ) -> tuple["Diagonal", float]:
        """Return the Gaussian after a step of the mean, of the sds, or of both, and how far the mean went."""
        step = now.g / np.maximum(np.abs(now.a), 1.0 / ratio)
        length = float(np.linalg.norm(step))
        step, length = step * min(1.0, reach / max(length, 1e-300)), min(length, reach)
        sds = self.sds / np.sqrt(np.clip(now.a, 1.0 / ratio, ratio)) if spread else self.sds
        return Diagonal(self.mean + self.sds * step if mean else self.mean, sds), length if mean else 0.0

    # coordinates around this Gaussian: mean mu + C m, sds C exp(x / sqrt 2)

    @property
    def num_coordinates(self) -> int:
        """How many numbers move mean and sds."""
        return 2 * len(self.mean)

    @property
    def num_responding(self) -> int:
        """How many leading coordinates are means whose covariance the linear response corrects: none."""
        return 0

    def shifted(self, w: Float[np.ndarray, " n"]) -> "Diagonal":
        """Return the Gaussian at coordinates w = (m, x)."""
        m, x = np.split(w, 2)
        return Diagonal(self.mean + self.sds * m, self.sds * np.exp(np.clip(x / np.sqrt(2.0), -30, 30)))

    def slope(self, w: Float[np.ndarray, " n"], evaluator: Evaluator, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the bound at coordinates w, and its gradient in w."""
        there = self.shifted(w)
        looked = evaluator(there.at(z))
        bound = float(np.mean(looked.values)) + there.entropy()
        x = (np.mean(there.whiten(looked.gradients) * z, axis=0) + 1.0) / np.sqrt(2.0)
        gradient = np.concatenate([self.whiten(looked.gradients).mean(axis=0), x])
        return (bound, gradient) if np.isfinite(bound) and np.all(np.isfinite(gradient)) else (-np.inf, gradient)

    def widened(self, S: Float[np.ndarray, "g g"]) -> "Diagonal":
        """Return itself: a covariance that responds would not be diagonal."""
        return self


class DiagonalExpectation(NamedTuple):
    """Bound, whitened gradient and whitened curvature."""

    bound: float
    g: np.ndarray
    a: np.ndarray

    @property
    def is_flat(self) -> bool:
        """Whether this is the optimum, but for little in each number."""
        d = len(self.g)
        return bool(np.linalg.norm(self.g) < 0.05 * np.sqrt(d) and np.linalg.norm(self.a - 1.0) < 0.1 * np.sqrt(d))
