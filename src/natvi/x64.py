"""The border of the doors: double precision, and JAX's usual rules, whatever the process has set.

JAX decides the width of new arrays by a global switch that natvi never touches. Inside `float64()` arrays
are 64 bits wide; a 64-bit JAX array that leaves the context turns into 32 bits in the next operation, so
whatever leaves goes out as NumPy (`to_host`).

Switches that a user turns on to find faults in code of their own (`jax_debug_nans`, strict promotion of types or
ranks, guards on transfers) would stop a fit that is in order: a step that overflows is taken back, a NumPy array is
handed to a compiled function. Inside the border they are off, outside they are as the user left them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import jax
import numpy as np

Tree = TypeVar("Tree")

# switch -> the context that sets it, and the value under which the doors compute
_RULES = {
    "jax_debug_nans": (jax.debug_nans, False),
    "jax_debug_infs": (jax.debug_infs, False),
    "jax_numpy_dtype_promotion": (jax.numpy_dtype_promotion, "standard"),
    "jax_numpy_rank_promotion": (jax.numpy_rank_promotion, "allow"),
}
_GUARDS = ("jax_transfer_guard", *(f"jax_transfer_guard_{way}" for way in ("host_to_device", "device_to_host")))


@contextmanager
def float64() -> Iterator[None]:
    """Return a context in which JAX computes in double precision, by its usual rules.

    Example:
        >>> import jax.numpy as jnp
        >>> with float64():
        ...     jnp.zeros(1).dtype.name
        'float64'
    """
    with _border(True):
        yield


@contextmanager
def float32() -> Iterator[None]:
    """Return a context in which JAX computes in single precision, by its usual rules, as deep models do."""
    with _border(False):
        yield


@contextmanager
def _border(double: bool) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(double))
        for name, (context, usual) in _RULES.items():
            if getattr(jax.config, name) != usual:  # a context that changes nothing would still cost time
                stack.enter_context(context(usual))
        if any(getattr(jax.config, name) not in (None, "allow") for name in _GUARDS):
            stack.enter_context(jax.transfer_guard("allow"))
        yield


def to_host(tree: Tree) -> Tree:
    """Copy every array of a pytree to NumPy, dtype kept."""
    return jax.tree.map(np.asarray, tree)
