"""The log-density at many points: the one program that a fit compiles.

A user waits for the compiler longer than for anything else. So all that asks for values, gradients or the user's
numbers, at whatever points, goes through one compiled function of a fixed number of points; the algebra around it is
NumPy's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.models.density.space.maps import Space
from natvi.run.compiled_code import quick_jit
from natvi.x64 import float64

BATCH = 128  # points of one call: whole vectors, and small enough for the cache


class Looked(NamedTuple):
    """What the log-density says at points.

    Attributes:
        values: log p, `(s,)`; not finite where it is not defined.
        gradients: `(s, d)`.
        read: The user's numbers `(s, k)`.
    """

    values: np.ndarray
    gradients: np.ndarray
    read: np.ndarray


class Evaluator:
    """log p, its gradient and the user's numbers, as functions of the free vector."""

    def __init__(self, density: Callable[[Float[Array, " d"]], Float[Array, ""]], space: Space) -> None:
        """Prepare the program; it is compiled at the first call."""
        self.space = space
        self.points = 0  # looked at so far
        self.at_once = _Counted(density, space)

    def __call__(self, theta: Float[np.ndarray, "s d"]) -> Looked:
        """Look at many points."""
        parts = []
        with float64():
            for at in range(0, len(theta), BATCH):
                piece = theta[at : at + BATCH]
                short = BATCH - len(piece)
                whole = np.concatenate([piece, np.repeat(piece[:1], short, axis=0)]) if short else piece
                parts.append((self.at_once(whole), len(piece)))
            # the calls above do not wait: here they are waited for
            found = [[np.asarray(array)[:count] for array in part] for part, count in parts]
        self.points += len(theta)
        values, gradients, *read = (np.concatenate(column) for column in zip(*found, strict=True))
        return Looked(values, gradients, read[0] if read else theta)

    def values(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, " s"]:
        """Return log p at many points."""
        return self(theta).values


class _Counted:
    """A compiled function that counts how often it was traced."""

    def __init__(self, density: Callable[..., Any], space: Space) -> None:
        self.traces = 0

        def look(theta: Array) -> tuple[Array, ...]:
            self.traces += 1
            value, gradient = jax.value_and_grad(lambda t: jnp.asarray(density(t), t.dtype))(theta)
            return (value, gradient) if space.is_plain else (value, gradient, space.read(theta))

        self.compiled = quick_jit(jax.vmap(look))

    def __call__(self, theta: np.ndarray) -> tuple[Array, ...]:
        return self.compiled(theta)
