"""From a batch of whole groups to the terms of its target, in shapes that batches share."""

import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family
from natvi.linalg import GroupedRows
from natvi.run.batches.group_batches import GroupBatch
from natvi.target import LikelihoodRows, RandomEffectsPrior, SumOfTerms


def batch_target(batch: GroupBatch, family: Family, cells: int, correlated: bool = True) -> SumOfTerms:
    """Lay the rows of a batch out in chunks of `cells` cells, and assemble the terms of its groups.

    The number of chunks is rounded up to a power of two beyond one for each group, so that batches with equally many
    groups mostly run the same compiled code.
    """
    k, p, r = len(batch.groups), batch.X.shape[1], batch.Z.shape[1]
    sizes = np.bincount(batch.codes, minlength=k)
    further = -(-sizes // cells) - 1
    num_extra = int(further.sum())
    padded = 1 << (num_extra - 1).bit_length() if num_extra else 0
    width = k + padded
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.arange(len(batch.codes)) - starts[batch.codes]  # rows stand group by group
    first_extra = k + np.concatenate([[0], np.cumsum(further)[:-1]])
    chunk = np.where(rank < cells, batch.codes, first_extra[batch.codes] + rank // cells - 1)
    cell = (rank % cells) * width + chunk

    def place(values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        grid = np.full((*values.shape[:-1], cells * width), fill, dtype=values.dtype)
        grid[..., cell] = values
        return grid.reshape(*values.shape[:-1], cells, width)

    extra = np.concatenate([np.repeat(np.arange(k), further), np.full(padded - num_extra, k - 1, dtype=np.int64)])
    offset = np.zeros(len(batch.y)) if batch.offset is None else batch.offset
    rows = GroupedRows(
        X=jnp.asarray(place(batch.X.T)),
        Z=jnp.asarray(place(batch.Z.T)),
        offset=jnp.asarray(place(offset)),
        filled=jnp.asarray(place(np.ones(len(batch.y), dtype=bool), fill=False)),
        extra=jnp.asarray(extra),
        num_simple=0,
    )
    weight = None if batch.weight is None else jnp.asarray(place(batch.weight))
    likelihood = LikelihoodRows(rows, jnp.asarray(place(batch.y)), family, weight=weight)
    effects = RandomEffectsPrior(r, p + family.num_extras, correlated)
    return SumOfTerms((likelihood, effects), ())
