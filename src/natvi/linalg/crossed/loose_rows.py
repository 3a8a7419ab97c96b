"""Rows of data in any order, each with the number of its group: batches of rows that are not kept together by group.

The same operator as `grouped_rows`, with one cell a chunk, so that every row is looked up and scattered by itself.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natvi.linalg.grouped_rows import GroupedRows


class LooseRows(GroupedRows):
    """The design operator; `extra` holds the group of every row."""

    num_groups: int = eqx.field(static=True, kw_only=True)

    @property
    def group(self) -> Int[Array, " C"]:
        """The group of every row."""
        return self.extra

    def per_chunk(self, by_group: Float[Array, "*a n"]) -> Float[Array, "*a C"]:
        """Look a quantity of its group up for every row."""
        return by_group[..., self.group]

    def per_group(self, by_chunk: Float[Array, "*a C"]) -> Float[Array, "*a n"]:
        """Sum a quantity of every row over its group."""
        return jnp.zeros((*by_chunk.shape[:-1], self.num_groups), by_chunk.dtype).at[..., self.group].add(by_chunk)
