"""Several processes that run one loop: what the first decides reaches all, what is spread over them comes together.

A loop on many hosts is the same program everywhere, so that its limits have to be the same numbers everywhere. No
process may take them from a clock or a keyboard of its own: process 0 decides (`natvi.run.lead`) and `share` tells all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from natvi.hosts.collect import company
from natvi.x64 import to_host

Tree = TypeVar("Tree")


def keep(values: np.ndarray) -> np.ndarray:
    """Return the values: of a single process they are those of the first."""
    return values


class Hosts(NamedTuple):
    """The processes of a loop, seen from one of them.

    Attributes:
        number: Of this process; number 0 decides, writes files and shows progress.
        share: Hands the numbers of process 0 to all; every process calls it equally often.
    """

    number: int = 0
    share: Callable[[np.ndarray], np.ndarray] = keep

    @property
    def is_first(self) -> bool:
        """Whether this process decides."""
        return self.number == 0


def these_hosts() -> Hosts:
    """Return the processes that JAX was started with, usually one.

    Example:
        >>> these_hosts().is_first
        True
    """
    if jax.process_count() == 1:
        return Hosts()
    from jax.experimental.multihost_utils import broadcast_one_to_all

    def share(values: np.ndarray) -> np.ndarray:
        with company():
            return np.asarray(broadcast_one_to_all(values))

    return Hosts(jax.process_index(), share)


def gather(tree: Tree) -> Tree:
    """Copy every array of a pytree to NumPy, whole, also where its parts lie in several processes; all of them call it.

    Example:
        >>> import jax.numpy as jnp
        >>> gather({"mean": jnp.arange(2)})["mean"].tolist()
        [0, 1]
    """
    return to_host(jax.tree.map(_whole, tree))


def _whole(leaf: Any) -> Any:
    if getattr(leaf, "is_fully_addressable", True):
        return leaf
    from jax.experimental.multihost_utils import process_allgather

    with company():
        return process_allgather(leaf, tiled=True)
