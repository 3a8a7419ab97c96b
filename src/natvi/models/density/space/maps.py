"""The user's space and the free space: constraints as part of the map between a flat vector and a pytree.

With bijectors the log-density is the user's, of constrained parameters, and the free vector has the density
log p(f(y)) + log |det df/dy|. With a function `constrain` the log-density is of the free parameters already, and the
function says what they mean: results, tables, draws and diagnostics are of what it returns.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.models.density.space.bijectors import BY_NAME, Bijector, real
from natvi.models.density.space.parameters import Parameters, named_leaves, read_init


class Space(NamedTuple):
    """The way between a flat, unconstrained vector and the parameters.

    Attributes:
        parameters: What the user reads, by leaf.
        free: The unconstrained numbers, by leaf of `init`.
        bijectors: Of the leaves of `init`.
        structure: Of `init`, as a pytree.
        start: The free vector at `init`.
        meaning: A function of the user's from the tree of `init` to what is read, or None.
    """

    parameters: Parameters
    free: Parameters
    bijectors: tuple[Bijector, ...]
    structure: Any
    start: np.ndarray
    meaning: Callable[[Any], Any] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the user reads the free numbers themselves."""
        return self.meaning is None and all(found is real for found in self.bijectors)

    def tree(self, theta: Float[Array, " d"]) -> tuple[Any, Float[Array, ""]]:
        """Return what the log-density is given, and the log-determinant that belongs to it."""
        parts = jnp.split(theta, np.cumsum(self.free.sizes)[:-1])
        leaves, total = [], jnp.zeros((), theta.dtype)
        for part, shape, bijector in zip(parts, self.free.shapes, self.bijectors, strict=True):
            leaf, log_det = bijector.forward(part.reshape(shape))
            leaves.append(leaf)
            total = total + log_det
        return jax.tree.unflatten(self.structure, leaves), total

    def read(self, theta: Float[Array, " d"]) -> Float[Array, " k"]:
        """Return the numbers that the user reads."""
        tree, _ = self.tree(theta)
        if self.meaning is not None:
            tree = self.meaning(tree)
        return jnp.concatenate([jnp.ravel(jnp.asarray(leaf, theta.dtype)) for leaf in jax.tree.leaves(tree)])


def open_space(init: Any, constrain: Any = None) -> Space:
    """Read `init` and the constraints beside it; inside `float64()`.

    Args:
        init: The user's start, in the user's space.
        constrain: None; a dict (nested like `init`) of bijectors or their names; or a function of the tree.

    Raises:
        ValueError: For what is not a start or not a constraint, with the cure.
    """
    leaves = read_init(init)
    structure = jax.tree.structure(init)
    names = [name for name, _ in leaves]
    shapes = [array.shape for _, array in leaves]
    if callable(constrain) and not isinstance(constrain, Bijector):
        free = Parameters(tuple(names), tuple(shapes))
        start = np.concatenate([array.ravel() for _, array in leaves])
        space = Space(free, free, (real,) * len(names), structure, start, constrain)
        return space._replace(parameters=_meant(space))
    found = _by_leaf(constrain, names)
    bijectors = [found.get(name, real) for name in names]
    starts = [_free_start(name, array, b) for (name, array), b in zip(leaves, bijectors, strict=True)]
    free = Parameters(tuple(names), tuple(part.shape for part in starts))
    start = np.concatenate([part.ravel() for part in starts])
    return Space(Parameters(tuple(names), tuple(shapes)), free, tuple(bijectors), structure, start)


def _meant(space: Space) -> Parameters:
    def read(theta: Array) -> Any:
        return space.meaning(space.tree(theta)[0])  # type: ignore[misc]

    try:
        tree = jax.eval_shape(read, jnp.asarray(space.start))
    except Exception as error:
        raise ValueError(f"constrain cannot be applied to init: {type(error).__name__}: {error}.") from error
    leaves = named_leaves(tree)
    if not leaves or any(leaf.dtype.kind not in "fiub" for _, leaf in leaves):
        raise ValueError("constrain must return real numbers: an array, or a dict of arrays.")
    return Parameters(tuple(name for name, _ in leaves), tuple(leaf.shape for _, leaf in leaves))


def _by_leaf(constrain: Any, names: list[str]) -> dict[str, Bijector]:
    if constrain is None:
        return {}
    if isinstance(constrain, str | Bijector):
        return {name: _bijector(name, constrain) for name in names}
    if not isinstance(constrain, Mapping):
        raise ValueError(
            "constrain must be a dict from names of parameters to constraints, e.g. {'sd': 'positive'}, or a function; "
            f"got {type(constrain).__name__}."
        )
    found = dict(_flat_items(constrain))
    unknown = [name for name in found if name not in names]
    if unknown:
        raise ValueError(f"constrain names {unknown[0]!r}, which init does not hold; it holds {', '.join(names)}.")
    return {name: _bijector(name, value) for name, value in found.items()}


def _flat_items(tree: Mapping[Any, Any], before: str = "") -> list[tuple[str, Any]]:
    items = []
    for key, value in tree.items():
        items += _flat_items(value, f"{before}{key}.") if isinstance(value, Mapping) else [(f"{before}{key}", value)]
    return items


def _bijector(name: str, value: Any) -> Bijector:
    if isinstance(value, str) and value in BY_NAME:
        return BY_NAME[value]
    if isinstance(value, Bijector) and not isinstance(value, type):
        return value
    known = ", ".join(map(repr, BY_NAME))
    raise ValueError(
        f"the constraint of {name!r} is {value!r}; it must be one of {known}, or made by natvi.bijectors.lower, upper "
        "or interval."
    )


def _free_start(name: str, array: np.ndarray, bijector: Bijector) -> np.ndarray:
    # a value outside gives NaN or an infinity, which is what is looked for
    with np.errstate(all="ignore"):
        try:
            free = np.asarray(bijector.inverse(array), dtype=float)
        except (IndexError, ValueError) as error:
            raise ValueError(
                f"the parameter {name!r} has shape {array.shape}, which does not go with the constraint "
                f"{bijector.name}: {error}."
            ) from error
    if not np.all(np.isfinite(free)):
        raise ValueError(
            f"the parameter {name!r} of init does not keep its constraint {bijector.name}, or lies on its edge. Start "
            "inside, e.g. 1.0 for a positive number, equal shares for a simplex, the identity for a factor."
        )
    return free
