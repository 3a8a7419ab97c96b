"""Checkpoints: a killed fit goes on where it was and ends with the same bits.

A checkpoint holds the whole loop state and a fingerprint of the target, so that it is never applied to other
data. It is written atomically in the format of saved fits.
"""

import hashlib
import time
import warnings
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np

from natvi.run.settings import check_seconds
from natvi.run.storage import file_format

Tree = TypeVar("Tree")
LEAST_INTERVAL = 2.0  # seconds between writes
SHARE = 20.0  # and at least this many times the duration of a write


def fingerprint(target: object) -> str:
    """Return a digest of a target's structure and of every number in it."""
    leaves, structure = jax.tree.flatten(target)
    digest = hashlib.sha256(_plain(str(structure)).encode())
    for leaf in leaves:
        array = np.ascontiguousarray(np.asarray(leaf))
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.data.cast("B") if array.size else b"")
    return digest.hexdigest()


def _plain(text: str) -> str:
    # functions print with their address, which differs between processes
    return "".join(part.split(">", 1)[-1] if i else part for i, part in enumerate(text.split(" at 0x")))


def require_same_shapes(state: object, blank: object) -> None:
    """Refuse a state that does not fit the model it is to go on with."""
    shapes, needed = ([np.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (state, blank))
    if shapes != needed:
        raise ValueError(
            "The state belongs to another model: its arrays have other shapes. Give result.state of a fit of this "
            "model to the same data, or leave state out to start afresh."
        )


class Checkpoint:
    """Writes the state now and then, and reads it back."""

    def __init__(self, path: str | Path, target: object, interval: float = LEAST_INTERVAL, settings: str = "") -> None:
        """Bind a path to a target; `interval` is the least time between writes in seconds."""
        self.path = Path(path)
        mark = fingerprint(target)
        self._mark = hashlib.sha256(f"{mark} {_plain(settings)}".encode()).hexdigest() if settings else mark
        self._interval = check_seconds("checkpoint_seconds", interval)
        self._next = time.monotonic() + self._interval
        self._failed = False

    def resume(self, blank: Tree) -> Tree | None:
        """Return the saved state in the shape of `blank`, or None where there is no checkpoint yet."""
        if not self.path.exists():
            return None
        arrays, document = file_format.read(self.path, "checkpoint")
        if document["target"] != self._mark:
            raise file_format.StorageError(
                f"The checkpoint {self.path} belongs to another model or other data. "
                "Give another path, or delete the file to start afresh."
            )
        leaves, structure = jax.tree.flatten(blank)
        return jax.tree.unflatten(structure, [arrays[f"{i:04d}"] for i in range(len(leaves))])

    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() >= self._next

    def save(self, state: object) -> None:
        """Write the state if it is time to."""
        if self.is_due():
            self.save_or_warn(state)

    def save_or_warn(self, state: object) -> None:
        """Write the state; where that fails the fit goes on, and the next time it is tried again."""
        try:
            self.save_now(state)
        except OSError as error:
            self._next = time.monotonic() + self._interval
            if not self._failed:
                words = f"The fit goes on, but its checkpoint could not be written: {error} It is tried again."
                warnings.warn(words, stacklevel=2)
            self._failed = True

    def save_now(self, state: object) -> None:
        """Write the state."""
        began = time.monotonic()
        leaves = jax.tree.leaves(state)
        arrays = {f"{i:04d}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        file_format.write(self.path, "checkpoint", arrays, {"target": self._mark})
        took = time.monotonic() - began
        self._next = began + took + max(self._interval, SHARE * took)


def save_at_the_end(keeper: Checkpoint, state: object) -> None:
    """Write the last state; if that fails the finished fit must not be lost."""
    try:
        keeper.save_now(state)
    except OSError as error:
        warnings.warn(f"The fit is complete, but its checkpoint could not be written: {error}", stacklevel=3)
