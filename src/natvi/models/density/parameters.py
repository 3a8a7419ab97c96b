"""A pytree of parameters as a flat vector with names: raveled once, unraveled once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

WHOLE = "theta"  # the name of a parameter tree that is a single array


class Parameters(NamedTuple):
    """The leaves of a pytree.

    Attributes:
        names: Of the leaves.
        shapes: Of the leaves.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def entries(self) -> list[str]:
        """Return a name for every number, such as "b[0,1]"."""
        found = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            found += [f"{name}[{','.join(map(str, at))}]" if shape else name for at in np.ndindex(*shape)]
        return found

    def split(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Return draws `(s, d)` by leaf, each `(s, *shape)`."""
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        parts = np.split(draws, np.cumsum(sizes)[:-1], axis=1)
        return {
            name: part.reshape(len(draws), *shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }


def read_parameters(init: Any) -> tuple[np.ndarray, Parameters, Callable[[jax.Array], Any]]:
    """Return the start as a vector, the names, and the way back; inside `float64()`.

    Raises:
        ValueError: For leaves that are no real numbers, with the cure.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(init)
    if not leaves:
        raise ValueError("init holds no parameters. Give a number, an array, or a dict of them, e.g. {'a': 0.0}.")
    names, shapes = [], []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or WHOLE
        array = np.asarray(leaf)
        if array.dtype.kind not in "f":
            raise ValueError(
                f"the parameter {name!r} of init holds {array.dtype}, and parameters are real numbers. Give floats, "
                "e.g. 0.0 in place of 0; what is not to be estimated belongs inside the log-density."
            )
        if not np.all(np.isfinite(array)):
            raise ValueError(f"the parameter {name!r} of init is not finite. Start from finite numbers, e.g. zeros.")
        names.append(name)
        shapes.append(array.shape)
    tree = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), dtype=jnp.float64), init)
    flat, back = ravel_pytree(tree)
    if flat.size == 0:
        raise ValueError("init holds arrays without entries. Give at least one number.")
    return np.asarray(flat), Parameters(tuple(names), tuple(shapes)), back
