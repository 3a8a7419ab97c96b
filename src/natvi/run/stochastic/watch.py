"""What a validation set says of a fit on its way: a value at the end of every window, and the best state so far.

It is part of the loop's state, so that a resumed fit stops early where it would have.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Watched(NamedTuple):
    """Values by window, NaN where there is none yet, and the best of them with its state."""

    values: Float[Array, " t"]
    best: Any
    best_value: Float[Array, ""]
    since_best: Int[Array, ""]


def first_watched(state: Any, length: int) -> Watched:
    """Return what is known before the first window."""
    return Watched(jnp.full(length, jnp.nan), state, jnp.asarray(-jnp.inf), jnp.zeros((), jnp.int32))


def note_value(watched: Watched, at: int, value: float, state: Any, counts: bool = True) -> Watched:
    """Note the value of a window; one that is not a number, or does not count yet, is never the best.

    Example:
        >>> watched = note_value(first_watched(jnp.zeros(1), 4), 0, -2.0, jnp.ones(1))
        >>> watched = note_value(watched, 1, -3.0, jnp.zeros(1))
        >>> float(watched.best_value), watched.best.tolist(), int(watched.since_best)
        (-2.0, [1.0], 1)
    """
    values = watched.values.at[at].set(value, mode="drop")
    if not counts:
        return watched._replace(values=values)
    if not value > float(watched.best_value):
        return watched._replace(values=values, since_best=watched.since_best + 1)
    best = jax.tree.map(jnp.asarray, state)
    return Watched(values, best, jnp.asarray(value, watched.best_value.dtype), jnp.zeros_like(watched.since_best))
