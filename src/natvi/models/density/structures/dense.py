"""A Gaussian with a full covariance that climbs: mean and root C with Sigma = C C', in NumPy.

With points z, theta = mu + C z and the gradients G there, Stein's identity gives the expected gradient and curvature in
units of posterior sds, from gradients alone:

    g = C' E grad,      A = -C' E[hess] C = -sym(E[C' grad z']) = V a V'.

At the optimum of the bound g = 0 and A = I.
"""

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.models.density.evaluator import Evaluator, Looked

ROOT_TWO = np.sqrt(2.0)


class Dense(NamedTuple):
    """N(mean, C C')."""

    mean: Float[np.ndarray, " d"]
    root: Float[np.ndarray, "d d"]
    log_det: float  # log |det C|

    @classmethod
    def narrow(cls, mean: Float[np.ndarray, " d"], sd: float) -> "Dense":
        """Return N(mean, sd^2 I)."""
        return cls(mean, sd * np.eye(len(mean)), float(len(mean) * np.log(sd)))

    @property
    def structure(self) -> str:
        """The name of the structure."""
        return "dense"

    @property
    def sds(self) -> np.ndarray:
        """The sd of every coordinate."""
        return np.sqrt(np.sum(self.root**2, axis=1))

    @property
    def triangle(self) -> np.ndarray:
        """The lower triangular root of the covariance."""
        upper = np.asarray(np.linalg.qr(self.root.T, mode="r"))
        signs = np.where(np.diagonal(upper) < 0, -1.0, 1.0)
        return (upper * signs[:, None]).T

    def at(self, z: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return mu + C z."""
        return self.mean + self.spread(z)

    def traced_at(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return mu + C z of one z, inside a program of JAX."""
        return jnp.asarray(self.mean) + jnp.asarray(self.root) @ z

    def spread(self, z: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return C z."""
        return z @ self.root.T

    def coordinates(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return z with theta = mu + C z."""
        return np.linalg.solve(self.root, (theta - self.mean).T).T

    def distance(self, mean: Float[np.ndarray, " d"]) -> float:
        """Return how many sds away another mean is."""
        return float(np.linalg.norm(np.linalg.solve(self.root, mean - self.mean)))

    def entropy(self) -> float:
        """Return the entropy."""
        return self.log_det + 0.5 * len(self.mean) * (1 + np.log(2 * np.pi))

    def whiten(self, gradients: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return C' g of every gradient."""
        return gradients @ self.root

    def expect(self, looked: Looked, z: Float[np.ndarray, "s d"]) -> "Expectation":
        """Return bound, gradient and curvature on the points."""
        bound = float(np.mean(looked.values)) + self.entropy()
        u = self.whiten(looked.gradients)
        if not (np.isfinite(bound) and np.all(np.isfinite(u))):
            return Expectation(-np.inf, np.zeros(0), np.zeros(0), np.zeros(0))
        product = u.T @ z / len(z)
        a, V = np.linalg.eigh(-0.5 * (product + product.T))
        return Expectation(bound, u.mean(axis=0), a, V)

    def moved(self, now: "Expectation", reach: float, ratio: float, mean: bool, spread: bool) -> tuple["Dense", float]:
        """Return the Gaussian after a step of the mean, of the covariance, or of both, and how far the mean went.

        Args:
            now: What was found here.
            reach: R, how far the mean may go, in sds.
            ratio: r, by which a precision may change.
            mean: Whether the mean moves.
            spread: Whether the covariance changes.
        """
        # mu += C V (V'g) / (max(|a|, 1/r) + shift), the shift so that the step is no longer than R
        step = shortened(now.V.T @ now.g, np.maximum(np.abs(now.a), 1.0 / ratio), reach)
        moved = self.mean + self.root @ (now.V @ step) if mean else self.mean
        # Sigma^-1 <- C^-T V clip(a, 1/r, r) V' C^-1
        a = np.clip(now.a, 1.0 / ratio, ratio)
        root = self.root @ ((now.V / np.sqrt(a)) @ now.V.T) if spread else self.root
        log_det = self.log_det - 0.5 * float(np.sum(np.log(a))) if spread else self.log_det
        return Dense(moved, root, log_det), float(np.linalg.norm(step)) if mean else 0.0

    # coordinates around this Gaussian: mean mu + C m, root C T with T lower triangular, its diagonal exp(x / sqrt 2)

    @property
    def num_coordinates(self) -> int:
        """How many numbers move mean and root."""
        d = len(self.mean)
        return d + d * (d + 1) // 2

    @property
    def num_responding(self) -> int:
        """How many leading coordinates are means whose covariance the linear response corrects: all."""
        return len(self.mean)

    def shifted(self, w: Float[np.ndarray, " n"]) -> "Dense":
        """Return the Gaussian at coordinates w = (m, x)."""
        T, log_det = self._inner(w)
        return Dense(self.mean + self.root @ w[: len(self.mean)], self.root @ T, self.log_det + log_det)

    def _inner(self, w: np.ndarray) -> tuple[np.ndarray, float]:
        """Return T and its log-determinant."""
        d = len(self.mean)
        T = np.zeros((d, d))
        T[_triangle(d)] = w[d:]
        logs = np.clip(np.diagonal(T) / ROOT_TWO, -30, 30)
        T[np.diag_indices(d)] = np.exp(logs)
        return T, float(np.sum(logs))

    def slope(self, w: Float[np.ndarray, " n"], evaluator: Evaluator, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the bound at coordinates w, and its gradient in w."""
        d, there = len(self.mean), self.shifted(w)
        looked = evaluator(there.at(z))
        u = self.whiten(looked.gradients)
        G = u.T @ z / len(z)
        diagonal = np.diag_indices(d)
        T = np.exp(np.clip(w[d:][_diagonal_places(d)] / ROOT_TWO, -30, 30))
        G[diagonal] = (G[diagonal] * T + 1.0) / ROOT_TWO  # the entropy's part is sum x / sqrt 2
        gradient = np.concatenate([u.mean(axis=0), G[_triangle(d)]])
        bound = float(np.mean(looked.values)) + there.entropy()
        return (bound, gradient) if np.isfinite(bound) and np.all(np.isfinite(gradient)) else (-np.inf, gradient)

    def widened(self, S: Float[np.ndarray, "d d"]) -> "Dense":
        """Return N(mean, C S C')."""
        inner = np.linalg.cholesky(S)
        return Dense(self.mean, self.root @ inner, self.log_det + float(np.sum(np.log(np.diagonal(inner)))))


class Expectation(NamedTuple):
    """Bound, whitened gradient, and the eigenvalues and vectors of the whitened curvature."""

    bound: float
    g: np.ndarray
    a: np.ndarray
    V: np.ndarray

    @property
    def is_flat(self) -> bool:
        """Whether this is the optimum, but for little."""
        return bool(np.linalg.norm(self.g) < 0.05 and np.linalg.norm(self.a - 1.0) < 0.1)


def shortened(g: Float[np.ndarray, " d"], a: Float[np.ndarray, " d"], reach: float) -> Float[np.ndarray, " d"]:
    """Return g / (a + shift) with the least shift for which it is no longer than the reach."""
    if np.linalg.norm(g / a) <= reach:
        return g / a
    low, high = 0.0, float(np.linalg.norm(g)) / max(reach, 1e-300)
    for _ in range(40):
        shift = 0.5 * (low + high)
        low, high = (shift, high) if np.linalg.norm(g / (a + shift)) > reach else (low, shift)
    return g / (a + high)


@cache
def _triangle(d: int) -> tuple[np.ndarray, np.ndarray]:
    return np.tril_indices(d)


def _diagonal_places(d: int) -> np.ndarray:
    """Return where the diagonal is among the entries of a lower triangle, row by row."""
    rows = np.arange(d)
    return rows * (rows + 3) // 2
