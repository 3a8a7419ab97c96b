"""A Gaussian whose precision lies on the arrow, T T' with T lower on the pattern: no d x d matrix is formed.

In whitened coordinates u = T^-1 grad and z = T'(theta - mu), Stein's identity gives the curvature on the pattern,

    A_ii = -E[u_i z_i'],   A_gi = -E[z_g u_i'],   A_gg = -E[u_g z_g'],

and the precision with that curvature is T A T', which lies on the arrow again. The points of every group are whitened
and orthogonal to the shared ones, so that all of this is exact for a Gaussian density, however few the points.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natvi.linalg import ArrowFactor, ArrowVector
from natvi.models.density.evaluator import Evaluator, Looked
from natvi.models.density.structures.layout import Layout
from natvi.run.compiled_code import quick_jit
from natvi.x64 import float64

ROOT_TWO = np.sqrt(2.0)

_push = quick_jit(lambda T, local, shared: jax.vmap(lambda a, b: T.solve_transposed(ArrowVector(a, b)))(local, shared))
_solve = quick_jit(lambda T, local, shared: jax.vmap(lambda a, b: T.solve(ArrowVector(a, b)))(local, shared))
_pull = quick_jit(
    lambda T, local, shared: jax.vmap(lambda a, b: T.transposed_product(ArrowVector(a, b)))(local, shared)
)
_multiply = quick_jit(lambda T, F: T.multiply(F))
_sds = quick_jit(lambda T: T.inverse_column_norms())


class Arrow(NamedTuple):
    """N(mean, (T T')^-1), T on the arrow."""

    mean: Float[np.ndarray, " d"]
    local: Float[np.ndarray, "r r n"]
    cross: Float[np.ndarray, "g r n"]
    shared: Float[np.ndarray, "g g"]
    at_local: Int[np.ndarray, "r n"]
    at_shared: Int[np.ndarray, " g"]

    @property
    def structure(self) -> str:
        """The name of the structure."""
        return "arrow"

    @property
    def layout(self) -> Layout:
        """Where the numbers are in the free vector."""
        return Layout(self.at_local, self.at_shared)

    @property
    def factor(self) -> ArrowFactor:
        """T."""
        return ArrowFactor(self.local, self.cross, self.shared)  # type: ignore[arg-type]

    @property
    def log_det(self) -> float:
        """Log |det C|, C = T^-T."""
        with np.errstate(all="ignore"):
            own = np.einsum("iin->in", self.local)[self.at_local >= 0]  # what a group does not have counts for nothing
            diagonals = own, np.diagonal(self.shared)
            return -float(sum(np.sum(np.log(np.abs(part))) for part in diagonals))

    @property
    def sds(self) -> Float[np.ndarray, " d"]:
        """The sd of every coordinate."""
        with float64():
            found = _sds(self.factor)
        return self.layout.join(np.asarray(found.local)[None], np.asarray(found.shared)[None])[0]

    def at(self, z: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return mu + T^-T z."""
        return self.mean + self.spread(z)

    def traced_at(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return mu + C z of one z, inside a program of JAX."""
        has, at = self.at_local >= 0, np.where(self.at_local >= 0, self.at_local, len(self.mean))
        local = jnp.where(has, z.at[at].get(mode="fill", fill_value=0.0), 0.0)
        moved = jax.tree.map(jnp.asarray, self.factor).solve_transposed(ArrowVector(local, z[self.at_shared]))
        return jnp.asarray(self.mean).at[at].add(moved.local, mode="drop").at[self.at_shared].add(moved.shared)

    def spread(self, z: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return T^-T z."""
        return self._apply(_push, z)

    def whiten(self, gradients: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return T^-1 g of every gradient."""
        return self._apply(_solve, gradients)

    def coordinates(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return z with theta = mu + T^-T z."""
        return self._apply(_pull, theta - self.mean)

    def _apply(self, program: Any, x: np.ndarray) -> np.ndarray:
        with float64():
            found = program(self.factor, *self.layout.split(x))
        return self.layout.join(np.asarray(found.local), np.asarray(found.shared))

    def distance(self, mean: Float[np.ndarray, " d"]) -> float:
        """Return how many sds away another mean is."""
        local, shared = self.layout.split((mean - self.mean)[None])
        with float64():
            found = self.factor.transposed_product(ArrowVector(local[0], shared[0]))  # type: ignore[arg-type]
        return float(np.sqrt(np.sum(np.asarray(found.local) ** 2) + np.sum(np.asarray(found.shared) ** 2)))

    def entropy(self) -> float:
        """Return the entropy."""
        return self.log_det + 0.5 * len(self.mean) * (1 + np.log(2 * np.pi))

    def expect(self, looked: Looked, z: Float[np.ndarray, "s d"]) -> "ArrowExpectation":
        """Return bound, gradient and curvature on the points."""
        bound = float(np.mean(looked.values)) + self.entropy()
        u = self.whiten(looked.gradients) if np.all(np.isfinite(looked.gradients)) else looked.gradients
        if not (np.isfinite(bound) and np.all(np.isfinite(u))):
            return ArrowExpectation(-np.inf, *(np.zeros(0),) * 4)
        (ul, us), (zl, zs), m = self.layout.split(u), self.layout.split(z), len(z)
        local = -np.einsum("sin,sjn->ijn", ul, zl) / m
        local = 0.5 * (local + local.swapaxes(0, 1))
        has = self.at_local >= 0
        local = local * has[:, None] * has[None] + np.einsum("ij,jn->ijn", np.eye(len(local)), ~has)
        shared = -us.T @ zs / m
        cross = -np.einsum("sg,sin->gin", zs, ul) / m
        return ArrowExpectation(bound, u.mean(axis=0), local, cross, 0.5 * (shared + shared.T))

    def moved(
        self, now: "ArrowExpectation", reach: float, ratio: float, mean: bool, spread: bool
    ) -> tuple["Arrow", float]:
        """Return the Gaussian after a step of the mean, of the precision, or of both, and how far the mean went.

        The step of the mean is A^-1 g; the new precision is T A T'. Eigenvalues of A's blocks stay within 1/r and r.
        """
        F = now.factor(ratio)
        local, shared = self.layout.split(now.g[None])
        with float64():
            half = _solve(F, local, shared)
            whole = _push(F, half.local, half.shared)
            step = self.layout.join(np.asarray(whole.local), np.asarray(whole.shared))
            T = jax.tree.map(np.asarray, _multiply(self.factor, F)) if spread else self.factor
        length = float(np.linalg.norm(step))
        step, length = step * min(1.0, reach / max(length, 1e-300)), min(length, reach)
        middle = self.mean + self.spread(step)[0] if mean else self.mean
        return self._replace(mean=middle, local=T.local, cross=T.cross, shared=T.shared), length if mean else 0.0

    # coordinates around this Gaussian: w = (shared part of m, local part of m, entries of F), with mean mu + T^-T m and
    # factor T F; the diagonal of F is exp(x / sqrt 2)

    @property
    def num_coordinates(self) -> int:
        """How many numbers move mean and factor."""
        return self.shared.shape[0] + self.at_local.size + self._entries

    @property
    def num_responding(self) -> int:
        """How many leading coordinates are means whose covariance the linear response corrects: the shared ones."""
        return len(self.at_shared)

    @property
    def _entries(self) -> int:
        return self.local.size + self.cross.size + self.shared.size

    def _unpack(self, w: np.ndarray) -> tuple[np.ndarray, ArrowFactor]:
        g, (r, n) = len(self.at_shared), self.at_local.shape
        m = self.layout.join(w[g : g + r * n].reshape(1, r, n), w[None, :g])
        local, cross, shared = np.split(w[g + r * n :], np.cumsum([self.local.size, self.cross.size]))
        local, shared = local.reshape(r, r, n) * (self.at_local >= 0)[:, None], shared.reshape(g, g)
        F = _triangles(local), cross.reshape(g, r, n), _triangles(shared[..., None])[..., 0]
        return m, ArrowFactor(*F)  # type: ignore[arg-type]

    def shifted(self, w: Float[np.ndarray, " n"]) -> "Arrow":
        """Return the Gaussian at coordinates w."""
        m, F = self._unpack(w)
        with float64():
            T = jax.tree.map(np.asarray, _multiply(self.factor, F))
        return self._replace(mean=self.mean + self.spread(m)[0], local=T.local, cross=T.cross, shared=T.shared)

    def slope(self, w: Float[np.ndarray, " n"], evaluator: Evaluator, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the bound at coordinates w, and its gradient in w."""
        _, F = self._unpack(w)
        there = self.shifted(w)
        looked = evaluator(there.at(z))
        bound = float(np.mean(looked.values)) + there.entropy()
        if not (np.isfinite(bound) and np.all(np.isfinite(looked.gradients))):
            return -np.inf, np.full(self.num_coordinates, np.nan)
        u = self.whiten(looked.gradients)
        with float64():
            y = _push(F, *self.layout.split(z))  # F^-T z
            v = _solve(F, *self.layout.split(u))  # F^-1 T^-1 grad
        (yl, ys), (vl, vs) = ((np.asarray(part.local), np.asarray(part.shared)) for part in (y, v))
        # d bound / dF = -E[y v'] - diag(1 / F)
        local = _entries_slope(-np.einsum("sin,sjn->ijn", yl, vl) / len(z), np.asarray(F.local))
        local = local * (self.at_local >= 0)[:, None]
        shared = _entries_slope((-ys.T @ vs / len(z))[..., None], np.asarray(F.shared)[..., None])
        cross = -np.einsum("sg,sin->gin", ys, vl) / len(z)
        ml, ms = self.layout.split(u.mean(axis=0)[None])
        return bound, np.concatenate([part.ravel() for part in (ms, ml, local, cross, shared)])

    def widened(self, S: Float[np.ndarray, "g g"]) -> "Arrow":
        """Return the Gaussian with S as the covariance of the shared z: locals follow the shared numbers as before."""
        # z_g = K e, K K' = S: T_g <- T_g K^-T, and what locals have in common with z_g stays in T_gi
        K = np.linalg.cholesky(np.linalg.inv(S))  # inv S = K K', lower
        return self._replace(shared=self.shared @ K)


class ArrowExpectation(NamedTuple):
    """Bound, whitened gradient, and the blocks of the whitened curvature A."""

    bound: float
    g: np.ndarray
    local: np.ndarray
    cross: np.ndarray
    shared: np.ndarray

    @property
    def is_flat(self) -> bool:
        """Whether this is the optimum, but for little in each number."""
        off = np.sum((self.local - np.eye(len(self.local))[..., None]) ** 2)
        off = off + np.sum(self.cross**2) + np.sum((self.shared - np.eye(len(self.shared))) ** 2)
        return bool(np.linalg.norm(self.g) < 0.05 * np.sqrt(len(self.g)) and off < 0.01 * len(self.g))

    def factor(self, ratio: float) -> ArrowFactor:
        """Return the lower root of A, with eigenvalues of the blocks within 1/r and r."""
        A = _clipped(np.moveaxis(self.local, -1, 0), ratio)
        L = np.linalg.cholesky(A)
        B = np.moveaxis(self.cross, -1, 0)  # n, g, r
        cross = np.linalg.solve(L, B.swapaxes(1, 2)).swapaxes(1, 2)
        rest = _clipped((self.shared - np.einsum("ngr,nhr->gh", cross, cross))[None], ratio)[0]
        parts = np.moveaxis(L, 0, -1), np.moveaxis(cross, 0, -1), np.linalg.cholesky(rest)
        return ArrowFactor(*(np.ascontiguousarray(part) for part in parts))  # type: ignore[arg-type]


def _clipped(A: np.ndarray, ratio: float) -> np.ndarray:
    a, V = np.linalg.eigh(A)
    return (V * np.clip(a, 1.0 / ratio, ratio)[:, None, :]) @ V.swapaxes(1, 2)


def _triangles(x: np.ndarray) -> np.ndarray:
    """Return lower triangles `(k, k, n)` with the diagonal exp(x / sqrt 2)."""
    k = len(x)
    lower = x * np.tril(np.ones((k, k)), -1)[..., None]
    diagonal = np.exp(np.clip(np.einsum("iin->in", x) / ROOT_TWO, -30, 30))
    return lower + np.eye(k)[..., None] * diagonal[:, None]


def _entries_slope(G: np.ndarray, F: np.ndarray) -> np.ndarray:
    """Return the gradient in x of lower triangles, from that in F."""
    k = len(G)
    diagonal = (np.einsum("iin->in", G) * np.einsum("iin->in", F) - 1.0) / ROOT_TWO
    return G * np.tril(np.ones((k, k)), -1)[..., None] + np.eye(k)[..., None] * diagonal[:, None]
