"""Batches of whole groups: from arrays, memory-mapped files, or an iterator over pieces larger than memory.

The groups are divided into batches once, and every epoch visits each batch once: what a batch adds to the shared
parameters can then be kept and replaced at the next visit. A source says which batch it hands out.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from natvi.run.batches.row_batches import check_batch_size

MOST_REMEMBERED = 2_000_000  # groups of earlier pieces
COLUMNS = ("X", "Z", "y", "group")
OPTIONAL = ("offset", "weight")


class GroupBatch(NamedTuple):
    """The rows of some groups.

    Attributes:
        number: Of the batch, the same in every epoch.
        groups: Numbers of its k groups in the whole data, shape (k,).
        codes: Which of the k groups each row belongs to, shape (N,).
        X: Fixed-effects columns, shape (N, p).
        Z: Random-effects columns, shape (N, r).
        y: Responses, shape (N,).
        offset: Of the predictor, or None.
        weight: How often each row counts, or None.
    """

    number: int
    groups: np.ndarray
    codes: np.ndarray
    X: np.ndarray
    Z: np.ndarray
    y: np.ndarray
    offset: np.ndarray | None = None
    weight: np.ndarray | None = None


@runtime_checkable
class GroupSource(Protocol):
    """A source of batches of whole groups."""

    @property
    def num_groups(self) -> int:
        """The number of groups of the whole data."""
        ...

    def read(self, epoch: int) -> Iterator[GroupBatch]:
        """Return the batches of one epoch, each once, in any order."""
        ...


class GroupedArrays:
    """Batches from arrays in memory or memory-mapped files (`numpy.memmap`).

    Args:
        rows: A dict with `X` (N, p), `Z` (N, r), `y` (N,), `group` (N,), and optionally `offset` and `weight`. The
            group is any label; only this column is read as a whole. Rows of a group need not stand together, but files
            are read fastest if they do.
        batch_groups: Groups per batch; sizes differ by one at most.
        seed: Decides which groups share a batch, and the order of the batches.
        shuffle: Whether the batches are random and in random order; without it they follow the file.
    """

    def __init__(self, rows: Mapping[str, Any], batch_groups: int, *, seed: int = 0, shuffle: bool = True) -> None:
        """Bind the arrays and divide the groups."""
        self._rows = check_rows(rows)
        self.labels, codes = np.unique(np.asarray(rows["group"]), return_inverse=True)
        self.num_groups = len(self.labels)
        size = check_batch_size(batch_groups, self.num_groups)
        self._rank = None if np.all(codes[1:] >= codes[:-1]) else np.argsort(codes, kind="stable")
        self._ends = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=self.num_groups))])
        self._seed, self._shuffle = seed, shuffle
        order = np.random.default_rng((seed, 0)).permutation(self.num_groups) if shuffle else np.arange(self.num_groups)
        self._parts = [np.sort(part) for part in np.array_split(order, -(-self.num_groups // size))]

    def read(self, epoch: int) -> Iterator[GroupBatch]:
        """Return the batches of one epoch."""
        numbers = np.arange(len(self._parts))
        if self._shuffle:
            numbers = np.random.default_rng((self._seed, 1, epoch)).permutation(numbers)
        for number in numbers:
            groups = self._parts[number]
            starts, sizes = self._ends[groups], self._ends[groups + 1] - self._ends[groups]
            first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
            index = np.arange(sizes.sum()) + np.repeat(starts - first, sizes)
            if self._rank is not None:
                index = self._rank[index]
            taken = {name: np.asarray(a[index], dtype=np.float64) for name, a in self._rows.items()}
            yield GroupBatch(int(number), groups, np.repeat(np.arange(len(groups)), sizes), **taken)


class GroupedPieces:
    """Batches from an iterator over pieces of the data that need never be in memory together.

    Args:
        open_epoch: A function of the epoch's number that returns an iterator over pieces. A piece is a dict like the
            rows of `GroupedArrays` and holds whole groups: no group is in two pieces. Every epoch must give the same
            pieces in the same order. Pieces with equally many groups share compiled code.
        num_groups: The number of groups of the whole data.
    """

    def __init__(self, open_epoch: Any, num_groups: int) -> None:
        """Bind the function that opens the data."""
        if not callable(open_epoch):
            raise ValueError(
                "open_epoch must be a function of the epoch's number that returns an iterator, so that the data can be "
                f"read again in every epoch; got {type(open_epoch).__name__}."
            )
        self._open: Any = open_epoch
        self.num_groups = int(num_groups)
        self._known_whole = False

    def read(self, epoch: int) -> Iterator[GroupBatch]:
        """Return the pieces of one epoch."""
        seen = 0
        held: set[Any] = set()
        for number, piece in enumerate(self._open(epoch)):
            rows = check_rows(piece)
            labels, codes = np.unique(np.asarray(piece["group"]), return_inverse=True)
            if not self._known_whole:
                held = _check_whole(held, labels.tolist(), number)
            if seen + len(labels) > self.num_groups:
                raise ValueError(
                    f"The first {number + 1:,} pieces of epoch {epoch} hold {seen + len(labels):,} groups, and "
                    f"num_groups={self.num_groups:,} was promised: give the number of groups of the whole data."
                )
            order = np.argsort(codes, kind="stable")
            taken = {name: np.asarray(a, dtype=np.float64)[order] for name, a in rows.items()}
            yield GroupBatch(number, seen + np.arange(len(labels)), codes[order], **taken)
            seen += len(labels)
        if seen != self.num_groups:
            raise ValueError(
                f"Epoch {epoch} of the data held {seen:,} groups, and num_groups={self.num_groups:,} was promised. "
                "Every group must come once per epoch, in one piece: correct num_groups, or cut between groups."
            )
        self._known_whole = True


def _check_whole(held: set[Any], labels: list[Any], number: int) -> set[Any]:
    """Refuse groups that an earlier piece held; of very many groups only those of the piece before are remembered."""
    twice = [label for label in labels if label in held]
    if twice:
        raise ValueError(
            f"Group {twice[0]!r} is in piece {number + 1:,} and in an earlier one: every group must lie in one piece. "
            "Sort the rows by group and cut where the group changes."
        )
    return held.union(labels) if len(held) < MOST_REMEMBERED else set(labels)


def check_rows(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numeric columns, after a look at names and lengths."""
    missing = [name for name in COLUMNS if name not in rows]
    strange = [name for name in rows if name not in (*COLUMNS, *OPTIONAL)]
    if missing or strange:
        problem = f"lack {', '.join(missing)}" if missing else f"hold unknown {', '.join(map(str, strange))}"
        raise ValueError(f"The rows {problem}. They need {', '.join(COLUMNS)}, and may have {', '.join(OPTIONAL)}.")
    shapes = {name: np.shape(array) for name, array in rows.items() if array is not None}
    wrong = [name for name, shape in shapes.items() if len(shape) != (2 if name in "XZ" else 1)]
    lengths = {shape[0] for shape in shapes.values() if shape}
    if wrong or len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"X and Z need shape (rows, columns) and the others (rows,), with equal rows; got {shapes}.")
    return {name: rows[name] for name in shapes if name != "group"}
