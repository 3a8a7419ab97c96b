"""A lower triangular factor on any pattern, closed or not, stored densely: for small d.

With t_j the columns of T, log q = sum_j [log T_jj - (t_j' (theta - mu))² / 2]: the Fisher information of the factor is
block diagonal over columns, block j being (T T')^-1 on the rows s of column j, plus e e' / T_jj². For C it is the same
with (C C')^-1. So the natural gradient is one small solve for every column; where the pattern is closed it is
F half(F' G), without any. The blocked pattern of crossed effects is open.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg.dense import DenseFactor
from natvi.linalg.pattern import ClosedPattern, PatternFactor, lower_mask


@dataclass(frozen=True)
class OpenPattern(ClosedPattern):
    """The free entries of a lower triangular d x d matrix, row by row, which need not be closed under products."""

    @classmethod
    def from_array(cls, mask: np.ndarray) -> "OpenPattern":
        """Check a boolean matrix and keep it.

        Example:
            >>> OpenPattern.from_array(np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1]])).num_entries
            5
        """
        return cls(tuple(tuple(bool(x) for x in row) for row in lower_mask(mask)))


class OpenFactor(PatternFactor):
    """A lower triangular d x d matrix F that is zero off a pattern of any kind."""

    def natural(self, G: PatternFactor) -> PatternFactor:
        """Return the natural gradient that belongs to a Euclidean gradient G on the pattern: x_j with M_j x_j = G_j."""
        inner, eye = self.dense.inverse_square(), jnp.eye(self.matrix.shape[0], dtype=self.matrix.dtype)

        def column(own: Array, unit: Array, g: Array, diagonal: Array) -> Array:
            M = jnp.where(own[:, None] & own[None], inner, eye) + jnp.outer(unit, unit) / diagonal**2
            return jnp.linalg.solve(M, jnp.where(own, g, 0.0))

        found = jax.vmap(column)(jnp.asarray(self.pattern.mask.T), eye, G.matrix.T, self.diagonal())
        return self.on_pattern(DenseFactor(found.T))

    def multiply_half_outer(self, u: Float[Array, " d"], z: Float[Array, " d"]) -> PatternFactor:
        """Return the natural gradient that belongs to (F^-T u) z' on the pattern; F half(u z') where that is closed."""
        return self.natural(self.outer(self.solve_transposed(u), z))
