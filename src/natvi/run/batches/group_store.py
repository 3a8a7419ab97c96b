"""Where the blocks of the groups live between visits: in memory, in a memory-mapped file, or nowhere."""

from pathlib import Path

import numpy as np


class GroupStore:
    """One row of numbers per group, NaN before its first visit.

    Args:
        num_groups: The number of groups.
        width: Numbers per group.
        where: `"memory"`; `"recompute"` keeps nothing; anything else is the path of a file, made or reused.
    """

    def __init__(self, num_groups: int, width: int, where: str | Path = "memory") -> None:
        """Make room, or open the file of an earlier run."""
        self.rows: np.ndarray | None = None
        shape = (num_groups, width)
        if where == "memory":
            self.rows = np.full(shape, np.nan)
        elif where != "recompute":
            self.rows = _open(Path(where), shape)

    def read(self, groups: np.ndarray) -> np.ndarray | None:
        """Return the rows of some groups, or None where one of them was never visited or nothing is kept."""
        if self.rows is None:
            return None
        found = np.asarray(self.rows[groups])
        return found if np.all(np.isfinite(found)) else None

    def write(self, groups: np.ndarray, rows: np.ndarray) -> None:
        """Keep the rows of some groups; no other row is touched."""
        if self.rows is not None:
            self.rows[groups] = rows


def _open(path: Path, shape: tuple[int, int]) -> np.ndarray:
    if path.exists():
        found = np.lib.format.open_memmap(path, mode="r+")
        if found.shape != shape or found.dtype != np.float64:
            raise ValueError(
                f"The file {path} holds the blocks of another fit: {found.shape} in place of {shape}. Give another "
                "path, or delete the file."
            )
        return found
    made = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape)
    for start in range(0, shape[0], 1 << 14):  # piece by piece: the file may be larger than memory
        made[start : start + (1 << 14)] = np.nan
    return made
