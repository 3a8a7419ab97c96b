"""Checkpoints: a killed fit goes on where it was and ends with the same bits.

A checkpoint holds the whole loop state and a fingerprint of the target, so that it is never applied to other
data. It is written atomically in the format of saved fits.
"""

import hashlib
import time
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np

from natvi.fit import storage

Tree = TypeVar("Tree")
LEAST_INTERVAL = 2.0  # seconds between writes
SHARE = 20.0  # and at least this many times the duration of a write


def fingerprint(target: object) -> str:
    """Return a digest of a target's structure and of every number in it."""
    leaves, structure = jax.tree.flatten(target)
    digest = hashlib.sha256(_plain_structure(structure).encode())
    for leaf in leaves:
        array = np.ascontiguousarray(np.asarray(leaf))
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.data.cast("B") if array.size else b"")
    return digest.hexdigest()


def _plain_structure(structure: object) -> str:
    # functions print with their address, which differs between processes
    text = str(structure)
    return "".join(part.split(">", 1)[-1] if i else part for i, part in enumerate(text.split(" at 0x")))


class Checkpoint:
    """Writes the state now and then, and reads it back."""

    def __init__(self, path: str | Path, target: object, interval: float = LEAST_INTERVAL) -> None:
        """Bind a path to a target; `interval` is the least time between writes in seconds."""
        self.path = Path(path)
        self._mark = fingerprint(target)
        self._interval = interval
        self._next = time.monotonic() + interval

    def resume(self, blank: Tree) -> Tree | None:
        """Return the saved state in the shape of `blank`, or None where there is no checkpoint yet."""
        if not self.path.exists():
            return None
        arrays, document = storage.read(self.path, "checkpoint")
        if document["target"] != self._mark:
            raise storage.StorageError(
                f"The checkpoint {self.path} belongs to another model or other data. "
                "Give another path, or delete the file to start afresh."
            )
        leaves, structure = jax.tree.flatten(blank)
        return jax.tree.unflatten(structure, [arrays[f"{i:04d}"] for i in range(len(leaves))])

    def save(self, state: object, *, now: bool = False) -> None:
        """Write the state if it is time to, or at once."""
        began = time.monotonic()
        if not now and began < self._next:
            return
        leaves = jax.tree.leaves(state)
        arrays = {f"{i:04d}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        storage.write(self.path, "checkpoint", arrays, {"target": self._mark})
        took = time.monotonic() - began
        self._next = began + took + max(self._interval, SHARE * took)
