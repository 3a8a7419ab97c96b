"""The loop of a deterministic fit: compiled chunks of about half a second.

Between chunks Python looks at progress, and `natvi.run.lead` decides on Ctrl-C, checkpoints and the length of the next
chunk. What the iterations compute does not depend on it: the same executable runs whatever the chunk, so results are
the same bits.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natvi.optimize.ascent import AscentState, ascent_init, ascent_step
from natvi.optimize.system import Packed, System
from natvi.run.compiled_code import quick_jit, thorough_jit
from natvi.run.exact.convergence import is_finished, judge
from natvi.run.fitted import Fitted
from natvi.run.hosts import Hosts, gather, these_hosts
from natvi.run.interrupt import Interruption
from natvi.run.lead import Lead, Pace
from natvi.run.outcome import Outcome
from natvi.run.progress import StepProgress
from natvi.run.storage.checkpoint import Checkpoint, require_same_shapes

CHUNK_SECONDS = 0.5
LEAST_STEPS = 4  # every call allocates its work space anew, which costs as much as a tenth of a very long step
TRACE_LENGTH = 1024
CELLS_PER_SECOND = 3e7  # a cautious guess of rows evaluated per second, for the length of the first chunk


class LoopState(NamedTuple):
    """The optimizer's state and the bound after each iteration."""

    ascent: AscentState
    trace: Float[Array, " steps"]


def begin(system: System, start: Any) -> LoopState:
    """Return the state before the first iteration."""
    state = LoopState(ascent_init(system, start), jnp.full(TRACE_LENGTH, jnp.nan))
    # weakly typed numbers would make the second chunk, or a resumed one, another program to compile
    return jax.tree.map(lambda a: jax.lax.convert_element_type(a, a.dtype), state)


def chunk(system: System, state: LoopState, limit: Int[Array, ""], tolerance: Float[Array, ""]) -> LoopState:
    """Iterate as `run_chunk` does; it is compiled in two ways below."""

    def unfinished(state: LoopState) -> Array:
        return (state.ascent.evaluated < limit) & ~is_finished(system, state.ascent, tolerance)

    def step(state: LoopState) -> LoopState:
        ascent = ascent_step(system, state.ascent)
        return LoopState(ascent, state.trace.at[ascent.evaluated - 1].set(ascent.elbo, mode="drop"))

    return jax.lax.while_loop(unfinished, step, state)


_begin = quick_jit(begin)
_quick_chunk = quick_jit(chunk, donate_argnums=1)
_thorough_chunk = thorough_jit(chunk, donate_argnums=1)


@quick_jit
def _finish(system: System, x: Packed) -> Any:
    return system.gaussian(x)


def run_chunk(system: System, state: LoopState, limit: np.int64, tolerance: np.float64) -> LoopState:
    """Iterate until the limit is reached or the fit is finished; the state that was given is used up."""
    compiled = _quick_chunk if system.compiles_quickly else _thorough_chunk
    return compiled(system, state, limit, tolerance)


def climb(
    system: System,
    start: Any,
    *,
    max_steps: int = 500,
    tolerance: float = 1e-9,
    state: LoopState | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 2.0,
    hosts: Hosts | None = None,
) -> Fitted:
    """Maximise the exact bound from `start`, or go on from `state` or from the checkpoint.

    Args:
        system: The target with its structure.
        start: Where to start, as the system takes it: natural parameters, or a mean.
        max_steps: Iterations at most, those of earlier runs included.
        tolerance: The relative rise of the bound at which a step counts as nothing.
        state: The state of an earlier run.
        progress: Whether to show progress on the standard error stream after a second.
        checkpoint: A file to keep the state in; if it exists the fit goes on from it.
        checkpoint_seconds: The least time between two writes.
        hosts: The processes that run this loop together; by default those that JAX was started with.

    Returns:
        The Gaussian and its bound, the outcome, the bound after each iteration and the last state.
    """
    hosts = these_hosts() if hosts is None else hosts
    keeper = None if checkpoint is None else Checkpoint(checkpoint, system, checkpoint_seconds)
    current = _begin(system, start)
    if state is None and keeper is not None:
        state = keeper.resume(current)
    if state is not None:
        require_same_shapes(state, current)
        current = jax.tree.map(jnp.array, state)
    cells = sum(getattr(leaf, "size", 1) for leaf in jax.tree.leaves(system))
    pace = Pace(CHUNK_SECONDS, CHUNK_SECONDS * CELLS_PER_SECOND / max(cells, 1), LEAST_STEPS)
    with StepProgress(progress and hosts.is_first) as line, Interruption() as interruption:
        lead = Lead(pace, interruption, keeper, hosts)
        if keeper is not None:
            lead.save_first(current)
        before = (
            0 if state is None else int(current.ascent.evaluated)
        )  # to look at a fresh state would be to wait for it
        current = in_chunks(
            lambda state, limit: run_chunk(system, state, limit, np.float64(tolerance)),
            current,
            before,
            max_steps,
            line,
            lead,
        )
    if keeper is not None:
        lead.save_last(current)
    host, gaussian = gather((current, _finish(system, current.ascent.x)))
    return ended(system, host, gaussian, tolerance, lead.turn.interrupted)


def in_chunks(
    advance: Callable[[LoopState, np.int64], LoopState],
    state: LoopState,
    before: int,
    max_steps: int,
    line: StepProgress,
    lead: Lead,
    own: Callable[[Any], Any] = lambda part: part,
    whole: Callable[[LoopState], Any] = lambda state: state,
) -> LoopState:
    """Iterate, looking up between chunks, until the fit is finished, out of steps or interrupted.

    Args:
        advance: Iterates up to a limit.
        state: The first state.
        before: The iterations it has behind it.
        max_steps: Iterations at most, those included.
        line: Where progress is shown.
        lead: Who decides between chunks.
        own: Returns this process's part of something that is spread over processes.
        whole: Returns what a checkpoint keeps of a state.
    """
    while True:
        limit = min(before + lead.turn.steps, max_steps)
        lead.begin()
        state = advance(state, np.int64(limit))
        after = int(own(state.ascent.evaluated))
        turn = lead.look(after - before)
        if after < limit or after >= max_steps or turn.interrupted:
            return state
        line.update(after, float(own(state.ascent.elbo)))
        if turn.save:
            lead.save(whole(state))
        before = after


def ended(system: System, host: LoopState, gaussian: Any, tolerance: float, interrupted: bool) -> Fitted:
    """Return the end of an exact fit from its last state on the host."""
    outcome = judge(system, host.ascent, tolerance)
    if outcome is Outcome.MAX_STEPS and interrupted:
        outcome = Outcome.INTERRUPTED
    steps = int(host.ascent.evaluated)
    return Fitted(gaussian, float(host.ascent.elbo), 0.0, outcome, np.array(host.trace[:steps]), steps, host)
