"""The log-density at many points: the one program that a fit compiles.

A user waits for the compiler longer than for anything else. So all that asks for values, gradients or the user's
numbers, at whatever points, goes through one compiled function of a fixed number of points; the algebra around it is
NumPy's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.models.density.programs import program_of
from natvi.models.density.space.maps import Space
from natvi.x64 import float64

Density = Callable[[Float[Array, " d"]], Float[Array, ""]]
Carry = Callable[[Float[Array, " d"]], tuple[Float[Array, " d"], Float[Array, ""]]]

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


@runtime_checkable
class LooksAtPoints(Protocol):
    """What tells the log-density at many points: of a function, or of all rows in pieces."""

    points: int

    def __call__(self, theta: Float[np.ndarray, "s d"]) -> Looked:
        """Look at many points."""
        ...

    def values(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, " s"]:
        """Return log p at many points."""
        ...

    def read(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s k"]:
        """Return the user's numbers at many points."""
        ...


class Evaluator:
    """log p, its gradient and the user's numbers, as functions of the free vector.

    Args:
        density: The log-density of the free vector.
        space: From there to the user's numbers.
        carry: Where points are given in coordinates of their own: from these to the free vector and the
            log-determinant of that map.
    """

    def __init__(self, density: Density, space: Space, carry: Carry | None = None) -> None:
        """Prepare the program; it is compiled at the first call."""
        self.space = space
        self.points = 0  # looked at so far
        self.is_plain = carry is None and space.is_plain

        def log_p(t: Array) -> tuple[Array, Array]:
            theta, log_det = (t, 0.0) if carry is None else carry(t)
            return jnp.asarray(density(theta), t.dtype) + log_det, theta

        def look(t: Array) -> tuple[Array, ...]:
            (value, theta), gradient = jax.value_and_grad(log_p, has_aux=True)(t)
            if self.is_plain:
                return value, gradient
            return value, gradient, space.read(theta)

        with float64():
            self.at_once = program_of(look, len(space.start))

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

    def read(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s k"]:
        """Return the user's numbers at many points."""
        return theta if self.is_plain else self(theta).read


def read_pairs(evaluator: LooksAtPoints, gaussian: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the user's numbers `(count, k)` at antithetic draws of a Gaussian, a batch at a time."""
    half = rng.standard_normal((count // 2, len(gaussian.mean)))
    read: np.ndarray | None = None
    for at in range(0, len(half), BATCH):
        for sign, start in ((1.0, at), (-1.0, at + len(half))):
            piece = evaluator.read(gaussian.at(sign * half[at : at + BATCH]))
            read = np.empty((2 * len(half), piece.shape[1])) if read is None else read
            read[start : start + len(piece)] = piece
    assert read is not None
    return read
