"""Locals of a hierarchy in coordinates of their own, in which they hardly depend on the shared numbers.

A funnel is a hierarchy whose locals are as wide as a shared number says. Given the shared numbers phi, one Newton step
from fixed locals u0 leads to

    u_i = lambda_i(phi) + K_i(phi)^-T v_i,   K_i K_i' = -hess_i f(phi, u0),   lambda_i = u0_i + (K_i K_i')^-1 grad_i f,

with hess_i the block of group i. Locals of different groups do not meet, so that r Hessian-vector products give the
blocks of all groups. This is an exact change of variables whatever u0 is, with log-determinant -sum log |K_i|; v_i is
standard normal given phi where f is quadratic in u_i. Where a block is not positive definite, that of the point at
which the map was made takes its place.

Paper: RVB1 of Section 8.5 (Tan 2021), for any log-density.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg.small_blocks import cholesky, solve_lower, solve_upper
from natvi.models.density.structures.layout import Layout, differences

LEAST_GROUPS = 3
LEAST_PIVOT = 1e-6  # of a block, relative to that of the point at which the map was made


class Standardised(NamedTuple):
    """The map from (phi, v) to (phi, u), both in the places of the free vector.

    Attributes:
        density: The log-density of the free vector.
        layout: Which numbers are local.
        about: The free vector with u0 in its local places.
        blocks: Of minus the Hessian there, `(r, r, n)`.
    """

    density: Callable[[Array], Any]
    layout: Layout
    about: Float[np.ndarray, " d"]
    blocks: Float[np.ndarray, "r r n"]

    def __call__(self, t: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """Return the free vector and the log-determinant."""
        has, at = self.layout.local >= 0, self._places()
        phi = jnp.asarray(self.about).at[self.layout.shared].set(t[self.layout.shared])
        gradient, blocks = self._derivatives(phi)
        scale = np.einsum("iin->in", self.blocks)
        sound = jnp.all(jnp.isfinite(blocks), axis=(0, 1)) & _is_positive(blocks, LEAST_PIVOT * scale)
        blocks = jnp.where(sound, blocks, self.blocks)
        K = cholesky(blocks)
        step = solve_upper(K, solve_lower(K, gradient))
        v = jnp.where(has, t.at[at].get(mode="fill", fill_value=0.0), 0.0)
        u = jnp.where(has, self.about[np.maximum(self.layout.local, 0)] + step + solve_upper(K, v), 0.0)
        return phi.at[at].set(u, mode="drop"), -jnp.sum(jnp.where(has, jnp.log(jnp.einsum("iin->in", K)), 0.0))

    def _places(self) -> np.ndarray:
        """Return the places of the locals, beyond the end where a group has fewer."""
        return np.where(self.layout.local >= 0, self.layout.local, len(self.about))

    def _derivatives(self, theta: Float[Array, " d"]) -> tuple[Float[Array, "r n"], Float[Array, "r r n"]]:
        """Return the gradient in the locals, and the blocks of minus the Hessian; one where a group has fewer."""
        at, has = self._places(), self.layout.local >= 0
        slope = jax.grad(lambda t: jnp.asarray(self.density(t), t.dtype))

        def product(k: int) -> tuple[Array, Array]:
            along = jnp.zeros_like(theta).at[at[k]].set(1.0, mode="drop")
            found = jax.jvp(slope, (theta,), (along,))
            return found[0], -found[1].at[at].get(mode="fill", fill_value=0.0)

        both = [product(k) for k in range(len(at))]
        gradient = jnp.where(has, both[0][0].at[at].get(mode="fill", fill_value=0.0), 0.0)
        blocks = jnp.stack([column for _, column in both], axis=1)
        own = has[:, None] & has[None]
        eye = np.eye(len(at))[..., None] * np.ones(has.shape[1])
        return gradient, jnp.where(own, 0.5 * (blocks + blocks.swapaxes(0, 1)), eye)

    def back(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """Return (phi, 0): where the locals are where the Newton step leads."""
        t = np.array(theta)
        t[self.layout.local[self.layout.local >= 0]] = 0.0
        return t


def _is_positive(blocks: Float[Array, "r r n"], least: np.ndarray) -> Array:
    """Return which blocks have pivots that are large enough, without a NaN on the way."""
    A, sound = blocks, jnp.ones(blocks.shape[-1], bool)
    for k in range(len(blocks)):
        pivot = A[k, k]
        sound = sound & (pivot > least[k])
        column = jnp.where(sound, A[:, k] / jnp.where(sound, pivot, 1.0), 0.0)
        A = A - column[:, None] * A[None, k]
    return sound


def standardise(
    density: Callable[[Array], Any],
    layout: Layout,
    look: Callable[[Float[np.ndarray, "s d"]], Any],
    about: Float[np.ndarray, " d"],
    sds: Float[np.ndarray, " d"],
) -> Standardised | None:
    """Return the map made at a point, or None where it would not be one.

    Args:
        density: The log-density of the free vector.
        layout: Of the hierarchy.
        look: From points to what has their gradients.
        about: A point in the middle of the posterior, its locals u0.
        sds: Of all numbers, there.

    Example:
        >>> from natvi.models.density.evaluator import Evaluator
        >>> from natvi.models.density.space.maps import open_space
        >>> from natvi.x64 import float64
        >>> def funnel(t):
        ...     return -0.5 * jnp.sum(t[1:] ** 2) * jnp.exp(-t[0]) - 2.0 * t[0] - 0.5 * (t[0] / 3) ** 2
        >>> layout = Layout(np.arange(1, 5)[None], np.array([0]))
        >>> with float64():
        ...     look = Evaluator(funnel, open_space(np.zeros(5)))
        ...     carry = standardise(funnel, layout, look, np.zeros(5), np.ones(5))
        ...     theta, _ = carry(jnp.array([2.0, 1.0, 0.0, -1.0, 3.0]))
        >>> (np.asarray(theta) / np.exp(1.0))[1:].round(6).tolist()
        [1.0, 0.0, -1.0, 3.0]
    """
    if layout.local.shape[1] < LEAST_GROUPS or not len(layout.shared):
        return None
    blocks = _blocks_near(layout, look, about, sds)
    sound = np.all(np.isfinite(blocks)) and np.all(np.linalg.eigvalsh(np.moveaxis(blocks, -1, 0)) > 0)
    return Standardised(density, layout, about, blocks) if sound else None


def _blocks_near(
    layout: Layout, look: Callable[..., Any], about: np.ndarray, sds: np.ndarray
) -> Float[np.ndarray, "r r n"]:
    """Return the blocks of minus the Hessian at a point: groups do not meet, so that all move at once."""
    at, has = np.maximum(layout.local, 0), layout.local >= 0
    directions = np.zeros((len(at), len(about)))
    for k, (places, there) in enumerate(zip(layout.local, has, strict=True)):
        directions[k, places[there]] = 1.0
    products = differences(look, about, sds, directions)  # of row k: H (sds * v_k)
    blocks = -np.stack([products[k][at] / sds[at[k]] for k in range(len(at))], axis=1)
    own = has[:, None] & has[None]
    return np.where(own, 0.5 * (blocks + blocks.swapaxes(0, 1)), np.eye(len(at))[..., None])
