"""A pytree of parameters as one flat vector, and back: ravelled once at the border."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@dataclass(frozen=True)
class Layout:
    """The places of a pytree's arrays in a flat float32 vector; equal for equal trees, so that programs are shared."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, params: Any) -> "Layout":
        """Read the layout of a pytree, or say what is wrong with it.

        Example:
            >>> Layout.of({"w": jnp.ones((2, 3)), "b": jnp.zeros(3)}).num_params
            9
        """
        paths, structure = jax.tree_util.tree_flatten_with_path(params)
        if not paths:
            raise ValueError("params holds no arrays. Give the pytree of the net's parameters, as apply takes it.")
        for path, leaf in paths:
            name = jax.tree_util.keystr(path)
            if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise ValueError(
                    f"params{name} is {_kind(leaf)}; every leaf must be an array of floating-point numbers. Of an "
                    "Equinox module take the arrays: params, static = eqx.partition(net, eqx.is_inexact_array), and "
                    "let apply put them together again: lambda p, x: jax.vmap(eqx.combine(p, static))(x)."
                )
            if not np.isfinite(np.asarray(leaf)).all():
                raise ValueError(f"params{name} holds values that are not finite. Initialise the net anew.")
        names = tuple(jax.tree_util.keystr(path) for path, _ in paths)
        return cls(structure, tuple(tuple(leaf.shape) for _, leaf in paths), names)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of entries of every array."""
        return tuple(int(np.prod(shape)) for shape in self.shapes)

    @property
    def num_params(self) -> int:
        """The number of all entries."""
        return sum(self.sizes)

    def ravel(self, params: Any) -> Float[Array, " d"]:
        """Return the flat vector of a pytree."""
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(params)])

    def unravel(self, theta: Float[Array, " d"]) -> Any:
        """Return the pytree of a flat vector."""
        parts = jnp.split(theta, np.cumsum(self.sizes)[:-1])
        return jax.tree.unflatten(self.structure, [p.reshape(s) for p, s in zip(parts, self.shapes, strict=True)])


def _kind(leaf: Any) -> str:
    return f"an array of {leaf.dtype}" if hasattr(leaf, "dtype") else f"a {type(leaf).__name__}"
