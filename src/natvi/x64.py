"""The float64 border: doors compute in double precision whatever the process's default is.

JAX decides the width of new arrays by a global switch that natvi never touches. Inside `float64()` arrays
are 64 bits wide; a 64-bit JAX array that leaves the context turns into 32 bits in the next operation, so
whatever leaves goes out as NumPy (`to_host`).
"""

from contextlib import AbstractContextManager
from typing import TypeVar

import jax
import numpy as np

Tree = TypeVar("Tree")


def float64() -> AbstractContextManager[None]:
    """Return a context in which JAX computes in double precision."""
    return jax.enable_x64(True)


def to_host(tree: Tree) -> Tree:
    """Copy every array of a pytree to NumPy, dtype kept."""
    return jax.tree.map(np.asarray, tree)
