"""A symmetric matrix that is formed only as far as a pattern asks for it.

The curvature of a target is known by its ingredients (rows and weights, say). A diagonal factor reads its diagonal,
which costs as much as one product with a vector; a dense one reads it whole. So a target hands over the ingredients,
and the factor's `restrict` takes what lies on its pattern.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float


@runtime_checkable
class Symmetric(Protocol):
    """A symmetric d x d matrix."""

    def diagonal(self) -> Float[Array, " d"]:
        """Return the diagonal alone."""
        ...

    def dense(self) -> Float[Array, "d d"]:
        """Return all entries."""
        ...


class Formed(NamedTuple):
    """A symmetric matrix whose entries are all there."""

    matrix: Float[Array, "d d"]

    def diagonal(self) -> Float[Array, " d"]:
        """Return the diagonal."""
        return jnp.diagonal(self.matrix)

    def dense(self) -> Float[Array, "d d"]:
        """Return all entries."""
        return self.matrix
