"""The rows of a generalized linear model piece by piece: arrays on disk, or a function that opens an iterator.

Every piece is checked and encoded as it comes; no more than a piece, or the buffer of a shuffle, is in memory.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd

from natvi.models.linear.rows import read_matrix, rows_of_arrays
from natvi.models.regression.coordinates import Coordinates
from natvi.models.regression.rows import Rows
from natvi.run.batches.row_batches import ArrayBatches, Batches, IteratorBatches, common_length
from natvi.target.design_rows import Observations

NEEDED, OPTIONAL = ("X", "y"), ("offset", "weights", "trials")
PIECE_BYTES = 2**24  # of an array's piece
FORMS = "a pair (X, y), or a dict with X and y and perhaps offset, weights and trials"


class RowSource:
    """Rows that can be read again and again, in the same order.

    Args:
        source: Arrays, memory-mapped ones among them: a pair (X, y), or a dict with `X`, `y` and perhaps `offset`,
            `weights`, `trials`. Or a function of the epoch's number that returns a fresh iterator over such pieces.
        num_rows: The number of rows, where it is known.
        family: The name of the family.
        names: Names of the columns of X, or None.
        intercept: Whether a column of ones is put before the others.
    """

    def __init__(self, source: Any, num_rows: int | None, family: str, names: Any, intercept: bool) -> None:
        """Bind the source; nothing is read yet."""
        if isinstance(source, Iterator):
            raise ValueError(
                f"the source is a {type(source).__name__}, which can be read once, and a fit reads the rows many "
                "times. Give a function of the epoch's number that returns a fresh iterator, e.g. lambda epoch: "
                "read_pieces(path)."
            )
        if num_rows is not None and (
            isinstance(num_rows, bool) or not isinstance(num_rows, int | np.integer) or num_rows < 1
        ):
            raise ValueError(f"num_rows must be a whole number of at least 1, or left out; got {num_rows!r}.")
        self.num_rows = num_rows
        self.names: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.coordinates = Coordinates()  # set once the prior is chosen: all rows then come in these
        self._source: Any = source
        self._arrays = None if callable(source) else _sliceable(_parts(source))
        self._family, self._given_names, self._intercept = family, names, intercept
        self._form: tuple[int, tuple[str, ...]] | None = None  # width of X and optional columns, as the first piece has

    @property
    def has_offset(self) -> bool:
        """Whether the rows have an offset, known once a piece was read."""
        return self._form is not None and "offset" in self._form[1]

    def read(self, epoch: int = 0) -> Iterator[Rows]:
        """Return the pieces of an epoch, checked and encoded.

        Raises:
            ValueError: For a piece that does not belong to the model, or a number of rows other than `num_rows`.
        """
        seen = 0
        for piece in self._open(epoch):
            rows = self._encode(_parts(piece), seen)
            seen += len(rows.y)
            yield rows
        if self.num_rows is not None and seen != self.num_rows:
            raise ValueError(
                f"epoch {epoch} of the source held {seen:,} rows, and there should be {self.num_rows:,}. Every row "
                "must come once per epoch: correct num_rows, or return a fresh iterator for each epoch."
            )
        if seen == 0:
            raise ValueError("the source holds no rows. Give at least two, in pieces of any length.")

    def batches(self, scales: np.ndarray, batch_size: int, buffer_rows: int | None, seed: int) -> Batches:
        """Return shuffled minibatches, the columns divided by the scales."""
        assert self.num_rows is not None
        if self._arrays is not None:
            return _EncodedBatches(self, ArrayBatches(self._arrays, batch_size, seed=seed), scales)

        def open_epoch(epoch: int) -> Iterator[Observations]:
            # short pieces keep the buffer small, and with it what every draw from it copies
            for rows in self.read(epoch):
                yield from cut(scaled(rows, scales), batch_size)

        return IteratorBatches(open_epoch, self.num_rows, batch_size, buffer_rows=buffer_rows, seed=seed)

    def encode(self, parts: Mapping[str, Any]) -> Rows:
        """Return rows taken from anywhere in the arrays."""
        return self._encode(parts, None)

    def _open(self, epoch: int) -> Any:
        if self._arrays is None:
            opened = self._source(epoch)
            if not hasattr(opened, "__iter__"):
                raise ValueError(f"the source must return an iterator over pieces; got {type(opened).__name__}.")
            return opened
        width = sum(8 * int(np.prod(np.shape(a)[1:])) for a in self._arrays.values())
        return cut(self._arrays, max(1, PIECE_BYTES // width))

    def _encode(self, parts: Mapping[str, Any], first: int | None) -> Rows:
        try:
            return self._checked(parts)
        except ValueError as error:
            if first is None:
                raise
            raise ValueError(f"in the piece of the data that starts at row {first:,}: {error}") from error

    def _checked(self, parts: Mapping[str, Any]) -> Rows:
        X, names = read_matrix(parts["X"], self._given_names if self._form is None else None)
        form = X.shape[1], tuple(name for name in OPTIONAL if parts.get(name) is not None)
        if self._form is None:
            if self._intercept and "Intercept" in names:
                raise ValueError("X has a column called Intercept already: leave intercept=True out, or rename it.")
            self.names = ("Intercept", *names) if self._intercept else names
        elif form != self._form:
            came, before = (f"{p} columns and {' and '.join(extra) or 'no more'}" for p, extra in (form, self._form))
            raise ValueError(f"X has {came}, and in the first piece {before}. Give every piece the same columns.")
        if np.asarray(parts["y"]).dtype.kind not in "biuf":
            raise ValueError("y must hold numbers: a piece of text does not show which level counts as 1. Code it.")
        if self._intercept:
            X = np.column_stack([np.ones(len(X)), X])
        extra = parts.get("offset"), None, parts.get("trials")
        rows, notes = rows_of_arrays(X, parts["y"], self._family, *extra, learning=False)
        rows = rows.counted(_weights(parts.get("weights"), len(X)))
        if self._form is None:
            self._form, self.notes = form, notes
        return rows._replace(X=self.coordinates.columns(rows.X))


class _EncodedBatches:
    """Batches from arrays, encoded after they were taken."""

    def __init__(self, source: RowSource, inner: ArrayBatches, scales: np.ndarray) -> None:
        self.num_rows, self.batch_size = inner.num_rows, inner.batch_size
        self._source, self._inner, self._scales = source, inner, scales

    def take(self, step: int, count: int) -> Any:
        """Return the batches of `count` steps from `step` on."""
        taken = self._inner.take(step, count)
        flat = {name: a.reshape(-1, *a.shape[2:]) for name, a in taken.items()}
        rows = scaled(self._source.encode(flat), self._scales)
        return jax.tree.map(lambda a: a.reshape(count, self.batch_size, *a.shape[1:]), rows)


def scaled(rows: Rows, scales: np.ndarray) -> Observations:
    """Return the rows as the target takes them, on the host, with the columns divided by the scales."""
    parts: tuple[Any, ...] = (rows.X / scales, rows.y, rows.offset, rows.weight)
    return Observations(*parts)


def cut(rows: Any, size: int) -> Iterator[Any]:
    """Return the rows in pieces of `size`, the last one shorter."""
    for start in range(0, common_length(rows), size):
        yield jax.tree.map(lambda a: a[start : start + size], rows)  # noqa: B023 (used at once)


def _parts(piece: Any) -> Mapping[str, Any]:
    if isinstance(piece, tuple | list) and len(piece) == 2:
        piece = dict(zip(NEEDED, piece, strict=True))
    if not isinstance(piece, Mapping):
        raise ValueError(f"rows come as {FORMS}; got {type(piece).__name__}.")
    missing = [name for name in NEEDED if piece.get(name) is None]
    strange = [str(name) for name in piece if name not in (*NEEDED, *OPTIONAL)]
    if missing or strange:
        what = f"{' and '.join(missing)} missing" if missing else f"{', '.join(strange)} unknown"
        raise ValueError(f"rows come as {FORMS}; got {what}.")
    return piece


def _sliceable(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays of which some rows can be taken; those on disk stay there."""
    kept = {name: a for name, a in parts.items() if a is not None}
    plain = (list, tuple, pd.DataFrame, pd.Series)
    arrays = {name: np.asarray(a) if isinstance(a, plain) else a for name, a in kept.items()}
    if not all(hasattr(a, "shape") and hasattr(a, "dtype") for a in arrays.values()):
        raise ValueError(
            f"the source must be arrays, {FORMS}, or a function that returns an iterator over such pieces."
        )
    common_length(arrays)
    return arrays


def _weights(weights: Any, n: int) -> np.ndarray | None:
    if weights is None:
        return None
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (n,):
        raise ValueError(f"weights must hold one number for each of the {n} rows; got shape {values.shape}.")
    if not np.all(np.isfinite(values) & (values >= 0)):
        at = int(np.argmax(~(np.isfinite(values) & (values >= 0))))
        raise ValueError(f"weights must be finite and zero or more; number {at} is {values[at]}. Correct or drop it.")
    return values
