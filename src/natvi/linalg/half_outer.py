"""F half(a b') for any factor, through the outer product on its pattern: what a factor has unless it knows better."""

from typing import Any

import jax

from natvi.typing import Vector


def multiply_half_outer(self: Any, u: Vector, z: Vector) -> Any:
    """Return `F half(u z')` on the pattern, half(A) being the lower triangle of A with the diagonal halved."""
    outer = self.outer(u, z)
    return self.multiply(outer.with_diagonal(jax.tree.map(lambda x: 0.5 * x, outer.diagonal())))
