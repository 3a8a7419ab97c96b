"""A pytree of parameters as a flat vector with names: raveled once, unraveled once."""

from typing import Any, NamedTuple

import jax
import numpy as np

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
    def sizes(self) -> list[int]:
        """How many numbers every leaf holds."""
        return [int(np.prod(shape)) for shape in self.shapes]

    @property
    def entries(self) -> list[str]:
        """A name for every number, such as "b[0,1]"."""
        found = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            found += [f"{name}[{','.join(map(str, at))}]" if shape else name for at in np.ndindex(*shape)]
        return found

    @property
    def owners(self) -> np.ndarray:
        """The leaf of every number."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def split(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Return draws `(s, d)` by leaf, each `(s, *shape)`."""
        parts = np.split(draws, np.cumsum(self.sizes)[:-1], axis=1)
        return {
            name: part.reshape(len(draws), *shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Return the leaves of a pytree with their names, such as "a.b"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator=".") or WHOLE, leaf) for path, leaf in leaves]


def read_init(init: Any) -> list[tuple[str, np.ndarray]]:
    """Return names and values of the parameters to start from.

    Raises:
        ValueError: For leaves that are no real numbers, with the cure.
    """
    found = []
    for name, leaf in named_leaves(init):
        try:
            array = np.asarray(leaf)
        except Exception as error:
            raise ValueError(f"the parameter {name!r} of init is no array of numbers: {error}.") from error
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            raise ValueError(
                f"the parameter {name!r} of init holds {array.dtype}, and parameters are real numbers. Give floats, "
                "e.g. 0.0 in place of 0; what is not to be estimated belongs inside the log-density."
            )
        if not np.all(np.isfinite(array)):
            raise ValueError(f"the parameter {name!r} of init is not finite. Start from finite numbers, e.g. zeros.")
        found.append((name, np.asarray(array, dtype=float)))
    if not found:
        raise ValueError("init holds no parameters. Give a number, an array, or a dict of them, e.g. {'a': 0.0}.")
    if sum(array.size for _, array in found) == 0:
        raise ValueError("init holds arrays without entries. Give at least one number.")
    return found
