"""Minibatches of rows that lie in many processes: each brings its share, drawn from its own rows."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from natvi.run.batches.row_batches import ArrayBatches, check_batch_size


class PartBatches:
    """One process's share of every minibatch; together the shares are a batch of the whole data.

    Shares are in proportion to the rows of each process, one row at least, and laid out in equally many places
    everywhere: those left over hold copies of a row. Every process goes through its own rows in an order of its own.

    Args:
        rows: This process's rows, a pytree of arrays with a common leading axis; memory-mapped files will do.
        rows_of_each: The number of rows of every process.
        number: Of this process.
        batch_size: Rows of a batch, of all processes together.
        seed: Decides the orders.

    Attributes:
        num_rows: Of all processes.
        batch_size: As given.
        in_use: The number of this process's rows in a batch.
        scale: How many of its rows each of them stands for.

    Example:
        >>> source = PartBatches({"x": np.arange(10)}, (10, 30), number=0, batch_size=8)
        >>> source.in_use, source.scale, source.take(0, 1)["x"].shape
        (2, 5.0, (1, 6))
    """

    def __init__(self, rows: Any, rows_of_each: Sequence[int], number: int, batch_size: int, *, seed: int = 0) -> None:
        """Bind the arrays, and find the shares."""
        self.num_rows = sum(rows_of_each)
        self.batch_size = check_batch_size(batch_size, self.num_rows)
        shares = shares_of(self.batch_size, rows_of_each)
        self.in_use, self._places = shares[number], max(shares)
        self.scale = rows_of_each[number] / self.in_use
        # far from every seed that a user may give, and for the first process the seed itself
        self._own = ArrayBatches(rows, self.in_use, seed=seed + (number << 64))

    def take(self, step: int, count: int) -> Any:
        """Return the shares of `count` steps from `step` on, filled up to as many places as every process has."""
        missing = self._places - self.in_use

        def filled(a: np.ndarray) -> np.ndarray:
            return np.concatenate([a, np.repeat(a[:, :1], missing, axis=1)], axis=1) if missing else a

        return jax.tree.map(filled, self._own.take(step, count))


def shares_of(batch_size: int, rows_of_each: Sequence[int]) -> list[int]:
    """Return how many rows of a batch come from each process.

    Example:
        >>> shares_of(10, (100, 200, 1)), shares_of(5, (50, 50))
        ([3, 7, 1], [2, 3])
    """
    ends = [round(batch_size * int(end) / sum(rows_of_each)) for end in np.cumsum((0, *rows_of_each))]
    return [max(1, after - before) for before, after in pairwise(ends)]
