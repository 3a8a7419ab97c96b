"""The noisy loop in many processes, each with rows of its own: the same draw everywhere, the sums of gradients added.

The Gaussian and the rule's state are computed in every process from the same sums, and are those of process 0 after
every chunk: processors may differ in their last bits.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.hosts.collect import checked, collect, company, is_first
from natvi.hosts.program import over_hosts, own, spread
from natvi.over_hosts import HOSTS, first_only
from natvi.run.stochastic.loop import StochasticState, take_steps
from natvi.run.storage.checkpoint import Checkpoint


def run(move: Any, target: Any, state: StochasticState, key: Any, load: Any, first: Any, stop: Any) -> StochasticState:
    """Step up to count `stop`, as `run_steps` does."""
    with company():
        return jax.block_until_ready(
            own(_program(move)(*spread((target, state, jax.random.key_data(key), load, first, stop))))
        )


def resume(keeper: Checkpoint, blank: StochasticState) -> StochasticState | None:
    """Return the state that process 0 finds in its file, in all processes; None where there is none yet."""
    return collect(checked(lambda: keeper.resume(blank) if is_first() else None))[0]


@lru_cache(maxsize=32)
def _program(move: Any) -> Callable:
    def steps(target: Any, state: Any, key_data: Any, load: Any, first: Any, stop: Any) -> Any:
        after = take_steps(move, target, state, jax.random.wrap_key_data(key_data), load, first, stop)
        algorithm, average, window = bits_of_first((after.algorithm, after.average, after.window))
        return after._replace(algorithm=algorithm, average=average, window=window)

    return over_hosts(steps)


def bits_of_first(tree: Any) -> Any:
    """Return the very bits of process 0, the sign of a zero too, in one exchange; inside a program of all processes."""
    leaves, structure = jax.tree.flatten(tree)
    whole = {4: jnp.int32, 8: jnp.int64}
    found = list(leaves)
    for width in {leaf.dtype.itemsize for leaf in leaves}:
        at = [k for k, leaf in enumerate(leaves) if leaf.dtype.itemsize == width]
        bits = [jax.lax.bitcast_convert_type(leaves[k], whole[width]).ravel() for k in at]
        ends = np.cumsum([len(part) for part in bits])[:-1]
        shared = jnp.split(jax.lax.psum(first_only(jnp.concatenate(bits)), HOSTS), ends)
        for k, part in zip(at, shared, strict=True):
            found[k] = jax.lax.bitcast_convert_type(part.reshape(leaves[k].shape), leaves[k].dtype)
    return jax.tree.unflatten(structure, found)
