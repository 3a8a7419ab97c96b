"""Sums over the groups and rows of all processes, inside a program that every process runs on its own part.

Where a program is mapped over the axis `HOSTS` (`natvi.hosts.program`), arrays of groups and rows hold this process's
part, and everything else is the same in all of them. A sum over groups is then the sum of the parts' sums. Outside such
a program there is one part, and all of these functions return what they are given: a fit in one process is not touched.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

HOSTS = "hosts"
_in_blocks: ContextVar[bool] = ContextVar("in_blocks", default=False)
Tree = TypeVar("Tree")


def in_parts() -> bool:
    """Whether the program that is being traced runs on parts.

    Example:
        >>> in_parts()
        False
    """
    return HOSTS in jax.sharding.get_abstract_mesh().manual_axes


def add_up(tree: Tree) -> Tree:
    """Return the sums over all parts, leaf by leaf; the same bits in every process.

    Example:
        >>> add_up(2.0)
        2.0
    """
    if not in_parts():
        return tree
    # one reduction of one array: every reduction waits for all processes
    leaves, structure = jax.tree.flatten(tree)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    total = jax.lax.psum(jnp.concatenate([a.ravel().astype(float) for a in arrays]), HOSTS)
    ends = [0]
    for a in arrays:
        ends.append(ends[-1] + a.size)
    parts = [total[b:e].reshape(a.shape) for a, b, e in zip(arrays, ends[:-1], ends[1:], strict=True)]
    return jax.tree.unflatten(structure, parts)


def first_only(tree: Tree) -> Tree:
    """Return what is to be added once and not once for every part: zeros everywhere but in the first process."""
    if not in_parts():
        return tree
    first = jax.lax.axis_index(HOSTS) == 0
    return jax.tree.map(lambda a: jnp.where(first, a, jnp.zeros_like(a)), tree)


def as_first(tree: Any) -> Any:
    """Return what the first process has.

    Replicated numbers may differ in their last bits where processors differ; what decides must not.
    """
    return add_up(first_only(tree)) if in_parts() else tree


def summed(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a scalar function as the sum over all parts of what it is in each; its gradient is the sum likewise.

    A point that is the same everywhere would otherwise get the gradient of its own part alone.

    Example:
        >>> jax.value_and_grad(summed(lambda x: x**2))(3.0)
        (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    if not in_parts():
        return function

    @jax.custom_vjp
    def total(point: Any) -> Any:
        return add_up(function(point))

    def forward(point: Any) -> tuple[Any, Any]:
        return add_up(jax.value_and_grad(function)(point))  # value and gradient in one exchange

    def backward(gradient: Any, weight: Any) -> tuple[Any]:
        return (jax.tree.map(lambda g: weight * g, gradient),)

    total.defvjp(forward, backward)
    return total


@contextmanager
def in_blocks() -> Iterator[None]:
    """Return a context for work on some of this process's groups at a time, about which the others are not asked."""
    token = _in_blocks.set(True)
    try:
        yield
    finally:
        _in_blocks.reset(token)


def largest(values: Any) -> Any:
    """Return the largest of the values, in all processes unless they are worked through in blocks.

    It decides on steps of quadrature: with that of all rows the answer does not depend on how they are divided.

    Example:
        >>> float(largest(jnp.array([1.0, 3.0])))
        3.0
    """
    own = jnp.max(values)
    return jax.lax.pmax(own, HOSTS) if in_parts() and not _in_blocks.get() else own
