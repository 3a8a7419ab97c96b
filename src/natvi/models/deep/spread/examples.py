"""The examples of all processes: how many each holds, its share of a minibatch, and what all have to agree on."""

from typing import Any, NamedTuple

import jax
import numpy as np

from natvi.hosts.collect import collect, count, number, of_first
from natvi.hosts.joining import require_agreement
from natvi.models.deep.training import Training
from natvi.models.regression.spread.survey import row_marks
from natvi.run.batches.parts import PartBatches
from natvi.run.stochastic import parts
from natvi.target.rows import FunctionRows
from natvi.target.rows_in_parts import RowsInParts

PIECE_ROWS = 4096


class Examples(NamedTuple):
    """Examples of this process, and how many all of them hold.

    Attributes:
        rows: {"x", "y"} of this process.
        of_each: The number of rows of every process; of one process alone its own.
    """

    rows: dict[str, np.ndarray]
    of_each: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """The number of rows of all processes."""
        return sum(self.of_each)

    def share(self, target: FunctionRows, training: Training) -> tuple[FunctionRows | RowsInParts, dict[str, Any]]:
        """Return the log-density of all rows, and what the loop has to be told; of one process alone nothing."""
        if count() == 1:
            return target, {}
        source = PartBatches(self.rows, self.of_each, number(), training.batch_size, seed=training.seed)
        return in_parts(target, source), {"batches": source, "parts": parts}

    def mark(self) -> np.ndarray:
        """Return a number that tells these rows from others, however they are divided."""
        return np.array([sum(collect(mark_of(self.rows))) % 2**64], np.uint64)


def in_parts(target: FunctionRows, source: PartBatches) -> RowsInParts:
    """Return the log-density of all rows, as each process's share of a minibatch tells it."""
    shares = np.int32(source.in_use), np.float32(source.scale)
    return RowsInParts(target.log_likelihood, target.rows, target.prior, source.num_rows, *shares)


def join_examples(rows: dict[str, np.ndarray], words: dict[str, Any]) -> Examples:
    """Return the examples of all processes, or say where these differ in what has to be the same."""
    words = words | {"the shape of an example": rows["x"].shape[1:]}
    words |= {f"the kind of numbers in {name}": str(values.dtype) for name, values in rows.items()}
    require_agreement(words, "they would not train the same net")
    return Examples(rows, tuple(collect(len(rows["y"]))))


def start_of_first(start: np.ndarray) -> np.ndarray:
    """Return the first means of process 0: those of the others may come from other random numbers."""
    return of_first(start).astype(start.dtype)


def mark_of(rows: Any) -> int:
    """Return a number that another example would change, and neither their order nor their division.

    Example:
        >>> rows = {"x": np.arange(6.0).reshape(3, 2), "y": np.arange(3)}
        >>> mark_of(rows) == mark_of(jax.tree.map(lambda a: a[::-1], rows))
        True
    """
    leaves, total = jax.tree.leaves(rows), 0
    for start in range(0, len(leaves[0]), PIECE_ROWS):
        piece = [np.asarray(a[start : start + PIECE_ROWS], np.float64) for a in leaves]
        total += row_marks(np.column_stack([a.reshape(len(a), -1) for a in piece]), None)
    return total % 2**64
