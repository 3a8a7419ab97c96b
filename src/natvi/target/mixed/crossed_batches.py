"""The log-density of a crossed model whose rows are read in batches, for data larger than memory.

What rows contribute to the expectation is a sum over rows, in any order. Batches come from the host while the ascent
runs; the Gaussian, with its pairs of levels that meet, stays in memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natvi.linalg.crossed.loose_rows import LooseRows
from natvi.linalg.crossed.rows import CrossedRows
from natvi.target.expected import Expected
from natvi.target.mixed.crossed import CrossedTarget


class RowBatch(NamedTuple):
    """Some rows in any order, the last batch filled up with empty ones.

    Attributes:
        X: Columns of the coefficients.
        Z: Columns of the effects of the largest factor.
        offset: A known part of the predictor.
        y: Responses.
        weight: How often each row counts: 0 for rows that fill up.
        level: Of the largest factor.
        coordinate: Effects of smaller factors that the row touches.
        value: With which factor.
        pair: Which pairs of the pattern these are.
    """

    X: Float[Array | np.ndarray, "p 1 C"]
    Z: Float[Array | np.ndarray, "r 1 C"]
    offset: Float[Array | np.ndarray, "1 C"]
    y: Float[Array | np.ndarray, "1 C"]
    weight: Float[Array | np.ndarray, "1 C"]
    level: Int[Array | np.ndarray, " C"]
    coordinate: Int[Array | np.ndarray, "K 1 C"]
    value: Float[Array | np.ndarray, "K 1 C"]
    pair: Int[Array | np.ndarray, "K 1 C"]


class BatchedCrossedTarget(CrossedTarget):
    """The target; `design`, `y` and `weight` hold no rows.

    Attributes:
        read: From a batch's number to the batch, on the host.
        num_batches: How many there are.
        like: Shapes of a batch.
    """

    read: Callable[[Any], RowBatch] = eqx.field(static=True, kw_only=True)
    num_batches: int = eqx.field(static=True, kw_only=True)
    like: RowBatch = eqx.field(static=True, kw_only=True)

    def expected_rows(self, q: Any) -> Expected:
        """Return what the rows contribute to the expectation: the sum over batches."""

        def of(k: Array) -> Expected:
            halves = jax.tree.map(_in_halves, self.like)
            found = jax.tree.map(_whole, jax.pure_callback(self.read, halves, k), self.like)
            return self.around(found).expected_rows(q)

        def add(k: Array, total: Expected) -> Expected:
            return jax.tree.map(jnp.add, total, of(k))

        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(of, jnp.zeros((), jnp.int32)))
        total = jax.lax.fori_loop(jnp.int32(0), jnp.int32(self.num_batches), add, nothing)
        return total._replace(value=total.value + self.constant)

    def around(self, batch: RowBatch) -> CrossedTarget:
        """Return the target of the rows of a batch alone."""
        own: Any = RowBatch(*map(jnp.asarray, batch))
        filled = own.weight > 0
        rows = LooseRows(own.X, own.Z, own.offset, filled, own.level, 0, num_groups=self.num_levels)
        sizes = self.design.num_coordinates, self.design.num_pairs
        design = CrossedRows(rows, own.coordinate, own.value, own.pair, *sizes)
        nothing = jnp.zeros(())
        parts = (design, own.y, own.weight, nothing, self.effects, (), self.pattern, self.family, self.b)
        return CrossedTarget(*parts)


def _in_halves(like: Any) -> Any:
    """Return the shape in which doubles cross from the host: pairs of 32-bit numbers."""
    return jax.ShapeDtypeStruct((*like.shape, 2), np.int32) if like.dtype == np.float64 else like


def _whole(part: Array, like: Any) -> Array:
    return jax.lax.bitcast_convert_type(part, jnp.float64) if like.dtype == np.float64 else part
