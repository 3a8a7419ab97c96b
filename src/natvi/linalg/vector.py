"""Arithmetic of vectors that may be split into pieces: a flat array, or an ArrowVector."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

V = TypeVar("V")


def add(a: V, b: V, scale: float | Float[Array, ""] = 1.0) -> V:
    """Return `a + scale b`."""
    return jax.tree.map(lambda x, y: x + scale * y, a, b)


def dot(a: V, b: V) -> Float[Array, ""]:
    """Return the inner product."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum((jnp.sum(x * y) for x, y in pairs), jnp.zeros(()))


def length(a: object) -> int:
    """Return the number of coordinates."""
    return sum(leaf.size for leaf in jax.tree.leaves(a))


def standard_normal(key: PRNGKeyArray, like: V) -> V:
    """Draw independent standard normals in the shape of a vector."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    draws = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, draws)
