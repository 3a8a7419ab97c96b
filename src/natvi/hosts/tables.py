"""Tables that are read in pieces, again and again: Parquet and Arrow files, memory maps, iterators, frames."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from pandas.util import hash_array

from natvi.formula.frames import as_frame
from natvi.hosts.collect import count, number

PIECE_ROWS = 1 << 16
PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")


@runtime_checkable
class Table(Protocol):
    """Rows of this process, in pieces that are the same every time."""

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory anyway, so that what is made of them may be kept."""
        ...

    def read(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Return the pieces, with these columns at least."""
        ...


class Frame:
    """A data frame, or what can be made one."""

    in_memory = True

    def __init__(self, data: Any) -> None:
        """Bind the data."""
        self._frame = as_frame(data)

    def read(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Return the frame in pieces."""
        for start in range(0, len(self._frame), PIECE_ROWS):
            yield self._frame.iloc[start : start + PIECE_ROWS]


class Pieces:
    """Frames from a function that opens an iterator."""

    in_memory = False

    def __init__(self, opened: Any) -> None:
        """Bind the function."""
        if not callable(opened):
            raise ValueError(
                f"pieces() needs a function that returns a fresh iterator over tables each time, since a fit reads the "
                f"rows many times; got {type(opened).__name__}. Write e.g. pieces(lambda: pd.read_csv(path, "
                "chunksize=100_000))."
            )
        self._open: Any = opened

    def read(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Return the pieces that have rows."""
        for piece in self._open():
            frame = as_frame(piece)
            if len(frame):
                yield frame


class Files:
    """Parquet or Arrow files, row group by row group; processes that share them take a part each."""

    in_memory = False

    def __init__(self, path: str | Path, shared: bool) -> None:
        """Look for the files."""
        self._files, self._shared, self._group = _files(Path(path)), shared, ""

    def by_group(self, column: str) -> "Files":
        """Return the same files divided by the labels of a column: every process takes whole groups."""
        copy = Files.__new__(Files)
        copy._files, copy._shared, copy._group = self._files, self._shared, column
        return copy

    def read(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Return the pieces of this process."""
        divided = self._shared and count() > 1
        units = [(path, at) for path in self._files for at in range(_row_groups(path))]
        if divided and not self._group:
            units = units[len(units) * number() // count() : len(units) * (number() + 1) // count()]
        for path, at in units:
            for frame in _read(path, at, list(columns)):
                if divided and self._group:
                    own = labels_hash(frame[self._group]) % np.uint64(count()) == np.uint64(number())
                    frame = frame.loc[own]
                if len(frame):
                    yield frame


def parquet(path: str | Path, *, shared: bool = True) -> Files:
    """Return a table in Parquet or Arrow (IPC) files, read by row groups and never as a whole.

    Args:
        path: A file, a folder of files, or a pattern such as `"rows/*.parquet"`.
        shared: Whether all processes see the same files: each then reads its part of the row groups, or, for a model
            with groups, the rows of its groups. Without it a process reads all that it finds.

    Returns:
        The table, to be given to `natvi.glm` or `natvi.glmm` as data.
    """
    return Files(path, shared)


def arrays(columns: Mapping[str, Any]) -> Pieces:
    """Return a table of columns that may be memory-mapped files (`np.load(path, mmap_mode="r")`).

    Args:
        columns: One array `(n,)` for each name; an array `(n, k)` gives the columns name0, name1, ...

    Example:
        >>> from natvi import hosts
        >>> table = hosts.arrays({"y": np.arange(3.0), "x": np.ones((3, 2))})
        >>> next(table.read(["y"])).columns.tolist()
        ['y', 'x0', 'x1']
    """
    lengths = {name: len(a) for name, a in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"the columns need equally many rows, one at least; got {lengths}.")
    size = next(iter(lengths.values()))

    def opened() -> Iterator[pd.DataFrame]:
        for start in range(0, size, PIECE_ROWS):
            yield _frame({name: np.asarray(a[start : start + PIECE_ROWS]) for name, a in columns.items()})

    return Pieces(opened)


def pieces(opened: Any) -> Pieces:
    """Return a table from a function that returns a fresh iterator over data frames: the same rows every time.

    Example:
        >>> from natvi import hosts
        >>> table = hosts.pieces(lambda: ({"x": [float(k)]} for k in range(3)))
        >>> [frame.x.tolist() for frame in table.read(["x"])]
        [[0.0], [1.0], [2.0]]
    """
    return Pieces(opened)


def is_spread(data: Any) -> bool:
    """Whether data come in pieces, or are one process's part.

    Example:
        >>> is_spread({"x": [1.0]})
        False
    """
    return count() > 1 or isinstance(data, Frame | Pieces | Files)


def as_table(data: Any) -> Table:
    """Return data of any kind as a table."""
    return data if isinstance(data, Table) else Frame(data)


def labels_hash(labels: Any) -> np.ndarray:
    """Return a 64-bit number for every label of a column, the same in every process and on every machine.

    Example:
        >>> labels_hash(pd.Series(["a", "b", "a"])).tolist()[0] == labels_hash(pd.Series(["a"])).tolist()[0]
        True
    """
    plain: Any = labels.astype(object) if isinstance(labels.dtype, pd.CategoricalDtype) else labels
    return np.asarray(hash_array(plain.to_numpy(), categorize=True), np.uint64)  # type: ignore[operator]


def _frame(columns: dict[str, np.ndarray]) -> pd.DataFrame:
    plain: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        if values.ndim == 2:
            plain |= {f"{name}{k}": values[:, k] for k in range(values.shape[1])}
        else:
            plain[name] = values
    return pd.DataFrame(plain)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.name.endswith(PARQUET + ARROW)]
    elif path.is_file():
        found = [path]
    else:
        found = list(path.parent.glob(path.name)) if path.parent.is_dir() else []
    if not found:
        raise FileNotFoundError(
            f"there is no Parquet or Arrow file at {path}. Give a file, a folder of files that end in "
            f"{', '.join(PARQUET + ARROW)}, or a pattern such as rows/*.parquet."
        )
    return sorted(found)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("reading files by row groups needs pyarrow: pip install 'natvi[hosts]'.") from error
    return pyarrow


def _row_groups(path: Path) -> int:
    arrow = _pyarrow()
    if path.name.endswith(PARQUET):
        return arrow.parquet.ParquetFile(path).metadata.num_row_groups
    with arrow.memory_map(str(path)) as source:
        return arrow.ipc.open_file(source).num_record_batches


def _read(path: Path, at: int, columns: list[str]) -> Iterator[pd.DataFrame]:
    arrow = _pyarrow()
    if path.name.endswith(PARQUET):
        with arrow.parquet.ParquetFile(path) as file:
            present = [name for name in columns if name in file.schema_arrow.names]  # the formula says what is missing
            for batch in file.iter_batches(PIECE_ROWS, row_groups=[at], columns=present):
                yield batch.to_pandas()
        return
    with arrow.memory_map(str(path)) as source:
        batch = arrow.ipc.open_file(source).get_batch(at)
        for start in range(0, batch.num_rows, PIECE_ROWS):
            yield batch.slice(start, PIECE_ROWS).to_pandas()
