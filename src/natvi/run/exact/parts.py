"""The exact ascent of a model whose groups lie in several processes: one compiled program in all of them.

The loop is that of `loop.py`. Every process has the blocks of its own groups; the shared block is the same in all, and
so are the bits that decide. A checkpoint holds the parts of all processes with a number for every group, written by
process 0, so that as many processes, or another number, can go on.
"""

from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from natvi.hosts.collect import checked, collect, company
from natvi.hosts.program import over_hosts, own, spread
from natvi.optimize.ascent import AscentState
from natvi.optimize.system import Packed
from natvi.run.compiled_code import quick_jit
from natvi.run.exact.loop import CHUNK_SECONDS, LEAST_STEPS, LoopState, begin, chunk, ended, in_chunks
from natvi.run.fitted import Fitted
from natvi.run.hosts import these_hosts
from natvi.run.interrupt import Interruption
from natvi.run.lead import Lead, Pace
from natvi.run.progress import StepProgress
from natvi.run.storage.checkpoint import Checkpoint, require_same_shapes
from natvi.x64 import to_host


class Keeping(NamedTuple):
    """What a checkpoint holds: the parts of all processes, and the number of the group in every place, 0 for none."""

    state: LoopState
    groups: Any


@cache
def _begin() -> Any:
    return over_hosts(begin, quick_jit)


@cache
def _chunk(quickly: bool) -> Any:
    return over_hosts(chunk, quick_jit if quickly else jax.jit, donate_argnums=1)


@cache
def _finish() -> Any:
    return over_hosts(lambda system, x: system.gaussian(x), quick_jit)


def climb_in_parts(
    system: Any,
    start: Any,
    groups: np.ndarray,
    mark: Any,
    *,
    max_steps: int,
    tolerance: float,
    state: LoopState | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 2.0,
) -> Fitted:
    """Maximise the exact bound, each process with its own groups.

    Args:
        system: This process's part of the target, of the same shapes everywhere.
        start: Where to start, spread over the processes.
        groups: A number for the group in every place of this process, 0 where there is none.
        mark: Numbers that tell this model and data from others, for the checkpoint.
        max_steps: Iterations at most, those of earlier runs included.
        tolerance: The relative rise of the bound at which a step counts as nothing.
        state: The state of an earlier run on as many processes: this process's part.
        progress: Whether to show progress.
        checkpoint: A file to keep the state in; process 0 writes and reads it.
        checkpoint_seconds: The least time between two writes.

    Returns:
        The Gaussian of this process's groups and the shared coordinates, and this process's part of the state.
    """
    hosts, quickly = these_hosts(), system.compiles_quickly
    keeper = None if checkpoint is None else Checkpoint(checkpoint, mark, checkpoint_seconds)
    with StepProgress(progress and hosts.is_first) as line, Interruption() as interruption, company():
        parts, places = spread(system), spread(groups)
        current = _begin()(parts, start)
        if state is None and keeper is not None:
            state = _resume(keeper, Keeping(current, places), groups)
        if state is not None:
            require_same_shapes(state, own(current))
            current = spread(state)
        lead = Lead(Pace(CHUNK_SECONDS, LEAST_STEPS, LEAST_STEPS, 10), interruption, keeper, hosts)
        if keeper is not None:
            lead.save_first(Keeping(current, places))
        current = in_chunks(
            lambda state, limit: _chunk(quickly)(parts, state, *spread((limit, np.float64(tolerance)))),
            current,
            int(own(current.ascent.evaluated)),
            max_steps,
            line,
            lead,
            own,
            lambda state: Keeping(state, places),
        )
        if keeper is not None:
            lead.save_last(Keeping(current, places))
        host = to_host(own(current))
        gaussian = to_host(own(_finish()(parts, current.ascent.x)))
    return ended(system, host, gaussian, tolerance, lead.turn.interrupted)


def _resume(keeper: Checkpoint, blank: Keeping, groups: np.ndarray) -> LoopState | None:
    """Return this process's part of what process 0 finds in its file."""
    there = collect(checked(lambda: keeper.resume(blank) if these_hosts().is_first else None))[0]
    if there is None:
        return None
    number = these_hosts().number
    if there.groups.shape[0] == len(collect(None)) and all(
        collect(np.array_equal(there.groups[number], groups) if number < len(there.groups) else False)
    ):
        return jax.tree.map(lambda a: a[number], there.state)
    return moved(there, groups, to_host(own(blank.state)))


def moved(there: Keeping, groups: np.ndarray, blank: LoopState) -> LoopState:
    """Return the state of some groups out of the parts in which it was saved.

    Args:
        there: The parts, one behind the other on the first axis.
        groups: The number of the group in every place, 0 where there is none.
        blank: The state before the first step, for places without a group.
    """
    known = there.groups.reshape(-1)
    order = np.argsort(known, kind="stable")
    at = order[np.minimum(np.searchsorted(known[order], groups), len(known) - 1)]
    real = groups != 0
    if not np.array_equal(known[at][real], groups[real]):
        raise ValueError("the checkpoint lacks some of the groups: it belongs to other data. Give another path.")

    def pick(parts: np.ndarray, empty: Any) -> np.ndarray:
        # (processes, ..., places) -> (..., processes * places)
        together = np.moveaxis(parts, 0, -2).reshape(*parts.shape[1:-1], -1)
        return np.where(real, together[..., at], empty)

    def each(name: str) -> Any:
        parts, empty = getattr(there.state.ascent, name), getattr(blank.ascent, name)
        if not hasattr(parts, "local"):
            return parts[0]
        return Packed(pick(parts.local, empty.local), parts.shared[0])  # type: ignore[arg-type]

    return LoopState(AscentState(*map(each, AscentState._fields)), there.state.trace[0])


def spread_start(make: Any, *parts: Any) -> Any:
    """Return what a function makes of the parts of all processes, spread over them."""
    with company():
        return over_hosts(partial(make), quick_jit)(*spread(parts))
