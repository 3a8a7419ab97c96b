"""Minibatches: shuffled rows from arrays, memory-mapped files, or iterators larger than memory.

A source hands out the batches of steps `step` to `step + count`, stacked, as a function of the step and the seed alone:
the same seed gives the same batches, also after a resume. Every epoch has its own order. Rows left over at the end of
an epoch, fewer than a batch, are not used in that epoch.
"""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np


@runtime_checkable
class Batches(Protocol):
    """A source of minibatches."""

    @property
    def num_rows(self) -> int:
        """The number of rows of the whole data."""
        ...

    @property
    def batch_size(self) -> int:
        """The number of rows of a batch."""
        ...

    def take(self, step: int, count: int) -> Any:
        """Return the batches of `count` steps from `step` on: the rows' pytree with leading axes (count, batch)."""
        ...


class ArrayBatches:
    """Batches from arrays in memory or memory-mapped files; a batch of a file reads its rows in their order on disk.

    Args:
        rows: A pytree of arrays with a common leading axis; memory-mapped files (`numpy.memmap`) will do.
        batch_size: Rows per batch.
        seed: Decides the order of the rows.
        shuffle: Whether every epoch has a random order.

    Example:
        >>> source = ArrayBatches({"x": np.arange(10)}, batch_size=5, shuffle=False)
        >>> source.take(1, 2)["x"].tolist()
        [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]
    """

    def __init__(self, rows: Any, batch_size: int, *, seed: int = 0, shuffle: bool = True) -> None:
        """Bind the arrays."""
        self.num_rows = common_length(rows)
        self.batch_size = check_batch_size(batch_size, self.num_rows)
        self._rows, self._seed, self._shuffle = rows, seed, shuffle
        self._order: tuple[int, np.ndarray] | None = None  # the epoch whose order is at hand

    def take(self, step: int, count: int) -> Any:
        """Return the batches of `count` steps from `step` on."""
        batches = [self._indices(s) for s in range(step, step + count)]
        return jax.tree.map(lambda a: np.stack([np.asarray(a[index]) for index in batches]), self._rows)

    def _indices(self, step: int) -> np.ndarray:
        epoch, within = divmod(step, self.num_rows // self.batch_size)
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng((self._seed, epoch))
            self._order = epoch, rng.permutation(self.num_rows) if self._shuffle else np.arange(self.num_rows)
        start = within * self.batch_size
        return np.sort(self._order[1][start : start + self.batch_size])


class IteratorBatches:
    """Batches from an iterator over pieces of the data, of any lengths, that need never be in memory together.

    Rows are shuffled within a buffer; read the pieces themselves in a random order if theirs has a meaning.

    Args:
        open_epoch: A function of the epoch's number that returns an iterator over pieces: pytrees of arrays with a
            common leading axis. The same number must give the same pieces, so that a fit can be resumed.
        num_rows: The number of rows of an epoch.
        batch_size: Rows per batch.
        buffer_rows: Rows held in memory for shuffling, at least a batch; by default ten batches.
        seed: Decides the order within the buffer.
    """

    def __init__(
        self,
        open_epoch: Any,
        num_rows: int,
        batch_size: int,
        *,
        buffer_rows: int | None = None,
        seed: int = 0,
    ) -> None:
        """Bind the function that opens the data."""
        if not callable(open_epoch):
            raise ValueError(
                "open_epoch must be a function of the epoch's number that returns an iterator, so that the data can be "
                f"read again in every epoch; got {type(open_epoch).__name__}."
            )
        self.num_rows, self.batch_size = num_rows, check_batch_size(batch_size, num_rows)
        self._buffer = max(buffer_rows or 10 * batch_size, batch_size)
        self._open: Any = open_epoch
        self._seed = seed
        self._next = -1
        self._stream: Any = iter(())

    def take(self, step: int, count: int) -> Any:
        """Return the batches of `count` steps from `step` on; going back or leaping reads the epoch again."""
        batches = [self._batch(s) for s in range(step, step + count)]
        return jax.tree.map(lambda *parts: np.stack(parts), *batches)

    def _batch(self, step: int) -> Any:
        epoch, within = divmod(step, self.num_rows // self.batch_size)
        if step != self._next or within == 0:
            self._stream = self._epoch(epoch)
            for _ in range(within):
                next(self._stream)
        self._next = step + 1
        return next(self._stream)

    def _epoch(self, epoch: int) -> Iterator[Any]:
        rng = np.random.default_rng((self._seed, epoch))
        held, seen = None, 0
        for piece in self._open(epoch):
            seen += common_length(piece)
            held = piece if held is None else jax.tree.map(lambda a, b: np.concatenate([a, b]), held, piece)
            while common_length(held) >= self._buffer:
                batch, held = self._draw(held, rng)
                yield batch
        if seen != self.num_rows:
            raise ValueError(
                f"Epoch {epoch} of the data held {seen:,} rows, and num_rows={self.num_rows:,} was promised. Every row "
                "must come once per epoch: correct num_rows, or return a fresh iterator for each epoch."
            )
        while held is not None and common_length(held) >= self.batch_size:
            batch, held = self._draw(held, rng)
            yield batch

    def _draw(self, held: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        """Take a random batch out of the rows held."""
        order = rng.permutation(common_length(held))
        chosen, rest = order[: self.batch_size], np.sort(order[self.batch_size :])
        return jax.tree.map(lambda a: a[chosen], held), jax.tree.map(lambda a: a[rest], held)


def common_length(rows: Any) -> int:
    """Return the length of the common leading axis."""
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(rows)}
    if len(lengths) != 1 or lengths == {0}:
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(rows)]
        raise ValueError(f"All arrays need the same number of rows, at least one, along the first axis; got {shapes}.")
    return lengths.pop()


def check_batch_size(batch_size: int, num_rows: int) -> int:
    """Refuse a batch size that is not between 1 and the number of rows."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or not 1 <= batch_size <= num_rows:
        raise ValueError(f"batch_size must be a whole number from 1 to {num_rows:,}, the rows; got {batch_size!r}.")
    return int(batch_size)
