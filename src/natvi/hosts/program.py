"""One program in every process, each on its own part: arrays with one more axis in front, one place for each process.

A process brings arrays of equal shapes; together they are one array of JAX, spread over the processes. Inside the
program (`shard_map`) a process sees its own part alone, and `natvi.over_hosts.add_up` sums over the parts: by gloo
between CPUs, by NCCL between GPUs. Every process uses its first device.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from natvi.over_hosts import HOSTS

PARTS = PartitionSpec(HOSTS)


@cache
def mesh() -> Mesh:
    """Return the first devices of all processes."""
    first = [min(jax.devices(), key=lambda d: (d.process_index != k, d.id)) for k in range(jax.process_count())]
    return Mesh(np.array(first), (HOSTS,))


def spread(tree: Any) -> Any:
    """Put this process's part of every array into its place."""
    sharding, here = NamedSharding(mesh(), PARTS), jax.local_devices()[0]

    def place(part: Any) -> jax.Array:
        part = jax.device_put(jnp.asarray(part)[None], here)
        shape = (jax.process_count(), *part.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, [part])

    return jax.tree.map(place, tree)


def own(tree: Any) -> Any:
    """Return this process's part of every array."""
    return jax.tree.map(lambda a: a.addressable_shards[0].data[0], tree)


def over_hosts(function: Callable, jit: Callable = jax.jit, **options: Any) -> Callable:
    """Return the program that every process runs on its part.

    Example:
        >>> from natvi.over_hosts import add_up
        >>> float(own(over_hosts(add_up)(spread(jnp.float32(2.0)))))
        2.0
    """

    def inner(*trees: Any) -> Any:
        found = function(*jax.tree.map(lambda a: a[0], trees))
        return jax.tree.map(lambda a: jnp.asarray(a)[None], found)

    # a value may differ between processes or not: check_vma would ask every constant which it is
    return jit(jax.shard_map(inner, mesh=mesh(), in_specs=PARTS, out_specs=PARTS, check_vma=False), **options)
