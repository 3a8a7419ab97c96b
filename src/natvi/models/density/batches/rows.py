"""A log-density that is a prior and a sum over rows: with a few rows standing for all, and over all rows in pieces.

The user's function gives the log prior plus the sum over the rows that it is handed. Asked with no rows it gives the
prior, so that with a batch B of N rows

    log p(theta) + (N / |B|) sum_B log p(y_i | theta) = f(theta, none) + (N / |B|) {f(theta, B) - f(theta, none)}

is an unbiased estimate of the whole.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.models.density.evaluator import BATCH, Looked
from natvi.models.density.space.maps import Space
from natvi.run.batches.row_batches import common_length
from natvi.run.compiled_code import quick_jit
from natvi.target.rows import scale_up
from natvi.typing import Vector
from natvi.x64 import float64

PIECE_ROWS = 4096
Function = Callable[[Any, Any], Any]  # of the parameters' tree and of rows


def none_of(rows: Any) -> Any:
    """Return no rows, of the same kind."""
    return jax.tree.map(lambda a: jnp.asarray(a[:0]), rows)


def scaled_up(function: Function, tree: Any, rows: Any, num_rows: int) -> Array:
    """Return the log-density of all rows, as these rows tell it."""
    prior = function(tree, none_of(rows))
    return prior + scale_up(num_rows, common_length(rows)) * (function(tree, rows) - prior)


class WhitenedRows(eqx.Module):
    """The log-density of coordinates in which a first Gaussian has independent coordinates of one small sd.

    theta = mean + C z / sd. The constant of that map is part of the log-density: the bound is that of theta.
    """

    function: Function = eqx.field(static=True)
    tree: Callable[[Any], tuple[Any, Array]] = eqx.field(static=True)
    rows: Any
    num_rows: int = eqx.field(static=True)
    mean: Float[Array, " d"]
    root: Float[Array, " d *more"]
    constant: Float[Array, ""]

    def with_rows(self, rows: Any) -> "WhitenedRows":
        """Return the target with these rows standing for all."""
        return WhitenedRows(self.function, self.tree, rows, self.num_rows, self.mean, self.root, self.constant)

    def value(self, theta: Vector) -> Float[Array, ""]:
        """Return the log-density at one point z."""
        z: Any = theta
        spread = self.root * z if self.root.ndim == 1 else self.root @ z
        tree, log_det = self.tree(self.mean + spread)
        return scaled_up(self.function, tree, self.rows, self.num_rows) + log_det + self.constant


class AllRows:
    """The log-density of all rows at many points, piece by piece: what an `Evaluator` is to a plain log-density."""

    def __init__(self, function: Function, space: Space, rows: Any) -> None:
        """Prepare the programs; they are compiled at the first call."""
        self.space, self.points, self.num_rows = space, 0, common_length(rows)
        self._rows = rows

        def part(theta: Array, piece: Any) -> Array:
            tree, _ = space.tree(theta)
            return function(tree, piece) - function(tree, none_of(piece))

        def rest(theta: Array, piece: Any) -> Array:
            tree, log_det = space.tree(theta)
            return function(tree, none_of(piece)) + log_det

        def many(one: Callable[[Array, Any], Array]) -> Callable[..., Any]:
            return quick_jit(lambda theta, piece: jax.vmap(lambda t: jax.value_and_grad(one)(t, piece))(theta))

        self._part, self._rest, self._read = many(part), many(rest), quick_jit(jax.vmap(space.read))

    def __call__(self, theta: Float[np.ndarray, "s d"]) -> Looked:
        """Look at many points."""
        parts = []
        with float64():
            for at in range(0, len(theta), BATCH):
                piece = theta[at : at + BATCH]
                whole = np.concatenate([piece, np.repeat(piece[:1], BATCH - len(piece), axis=0)])
                value, gradient = map(np.asarray, self._rest(whole, jax.tree.map(lambda a: a[:1], self._rows)))
                for first in range(0, self.num_rows, PIECE_ROWS):
                    rows = jax.tree.map(lambda a: jnp.asarray(a[first : first + PIECE_ROWS]), self._rows)  # noqa: B023
                    more, slope = self._part(whole, rows)
                    value, gradient = value + np.asarray(more), gradient + np.asarray(slope)
                parts.append([a[: len(piece)] for a in (value, gradient, np.asarray(self._read(whole)))])
        self.points += len(theta)
        return Looked(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def values(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, " s"]:
        """Return log p at many points."""
        return self(theta).values

    def read(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s k"]:
        """Return the user's numbers at many points: for these no row is looked at."""
        with float64():
            pieces = [theta[at : at + BATCH] for at in range(0, len(theta), BATCH)]
            read = [self._read(np.concatenate([p, np.repeat(p[:1], BATCH - len(p), axis=0)])) for p in pieces]
            return np.concatenate([np.asarray(r)[: len(p)] for r, p in zip(read, pieces, strict=True)])
