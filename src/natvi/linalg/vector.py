"""Arithmetic of vectors that may be split into pieces: a flat array, or an ArrowVector."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.linalg.normal_draws import normal_draws

V = TypeVar("V")


def add(a: V, b: V, scale: float | Float[Array, ""] = 1.0) -> V:
    """Return `a + scale b`."""
    return jax.tree.map(lambda x, y: x + scale * y, a, b)


def dot(a: V, b: V) -> Float[Array, ""]:
    """Return the inner product."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum((jnp.vdot(x, y) for x, y in pairs), jnp.zeros(()))


def length(a: object) -> int:
    """Return the number of coordinates."""
    return sum(leaf.size for leaf in jax.tree.leaves(a))


def is_flat(a: object) -> bool:
    """Tell whether a vector is one array, not split into pieces."""
    return getattr(a, "ndim", None) == 1


def is_split(a: object) -> bool:
    """Tell whether a vector has local parts and a shared one."""
    return hasattr(a, "local") and hasattr(a, "shared")


def standard_normal(key: PRNGKeyArray, like: V) -> V:
    """Draw independent standard normals in the shape of a vector."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    draws = jnp.split(normal_draws(key, int(ends[-1]), leaves[0].dtype), ends[:-1])  # one call for all pieces
    shaped = [draw.reshape(leaf.shape) for draw, leaf in zip(draws, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def standard_normal_kept(key: PRNGKeyArray, like: V) -> V:
    """Draw as `standard_normal`, but once.

    The compiler copies cheap-looking operations into every loop that uses them, and would draw d numbers anew for each
    of d^2 entries of a factor. A loop of one trip, which it cannot see to be one, keeps them.
    """
    one = jnp.minimum(jax.random.key_data(key).ravel()[0] | 1, 1).astype(jnp.int32)
    nothing = jax.tree.map(jnp.zeros_like, like)
    return jax.lax.fori_loop(0, one, lambda _, z: standard_normal(key, like), nothing)
