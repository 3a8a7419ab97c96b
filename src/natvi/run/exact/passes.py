"""The exact ascent of rows that are read piece by piece, or lie in many processes: one pass for each evaluation.

The Gaussian has d numbers and d^2; the rows have to say a value, d numbers and d^2 too. So every process sums over its
own rows, the sums are added up, and the rest is as for rows in memory. What is exchanged does not depend on the rows.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.hosts.collect import checked, collect, of_first
from natvi.optimize.ascent import digest, propose, state_at
from natvi.optimize.system import Packed
from natvi.run.exact.convergence import is_finished
from natvi.run.exact.loop import TRACE_LENGTH, LoopState, ended
from natvi.run.fitted import Fitted
from natvi.run.hosts import these_hosts
from natvi.run.interrupt import Interruption
from natvi.run.lead import Lead, Pace
from natvi.run.progress import StepProgress
from natvi.run.storage.checkpoint import Checkpoint, require_same_shapes
from natvi.target import Expected
from natvi.x64 import to_host

_propose, _digest = jax.jit(propose), jax.jit(digest)


@jax.jit
def _question(system: Any, x: Packed) -> Any:
    return system.question(x)


@jax.jit
def _answer(system: Any, x: Packed, q: Any, rows: Expected) -> Any:
    return system.answer(x, q, system.target.joined(rows, q))


def climb_by_passes(
    system: Any,
    start: Packed,
    ask_rows: Callable[[Any], Expected],
    mark: Any,
    *,
    max_steps: int,
    tolerance: float,
    state: LoopState | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 2.0,
) -> Fitted:
    """Maximise the exact bound, the rows being asked for their part at every evaluation.

    Args:
        system: The structure, around a target whose own rows are a few, for their shapes.
        start: The first point.
        ask_rows: Returns the expected log-likelihood of all rows under a Gaussian, with its derivatives.
        mark: Numbers that tell this model and data from others, for the checkpoint.
        max_steps: Evaluations at most, those of earlier runs included.
        tolerance: The relative rise of the bound at which a step counts as nothing.
        state: The state of an earlier run.
        progress: Whether to show progress.
        checkpoint: A file to keep the state in; process 0 writes it.
        checkpoint_seconds: The least time between two writes.

    Returns:
        What `climb` returns.
    """
    hosts = these_hosts()
    keeper = None if checkpoint is None else Checkpoint(checkpoint, mark, checkpoint_seconds)
    current = LoopState(state_at(system, start), jnp.full(TRACE_LENGTH, jnp.nan))
    if state is None and keeper is not None:
        state = resume(keeper, current)
    if state is not None:
        require_same_shapes(state, current)
        current = jax.tree.map(jnp.asarray, state)
    with StepProgress(progress and hosts.is_first) as line, Interruption() as interruption:
        lead = Lead(Pace(0.0), interruption, keeper, hosts)
        if keeper is not None:
            lead.save_first(current)
        while int(current.ascent.evaluated) < max_steps and not is_finished(system, to_host(current.ascent), tolerance):
            current, said = _step(system, current, ask_rows, lead)
            turn = lead.take(said)
            if turn.interrupted:
                break
            line.update(int(current.ascent.evaluated), float(current.ascent.elbo))
            if turn.save:
                lead.save(current)
    if keeper is not None:
        lead.save_last(current)
    host = to_host(current)
    return ended(system, host, to_host(system.gaussian(current.ascent.x)), tolerance, lead.turn.interrupted)


def resume(keeper: Checkpoint, blank: Any) -> Any:
    """Return the state that process 0 finds in its file, in all processes; None where there is none yet."""
    return collect(checked(lambda: keeper.resume(blank) if these_hosts().is_first else None))[0]


def _step(system: Any, state: LoopState, ask_rows: Callable[[Any], Expected], lead: Lead) -> tuple[LoopState, Any]:
    x = _propose(state.ascent)
    q = _question(system, x)
    # what is decided, is decided on the numbers of process 0; every exchange waits for all, so that these are one
    found, said = of_first((_answer(system, x, q, ask_rows(q)), np.asarray(lead.propose(1), np.int32)))
    ascent = _digest(state.ascent, jax.tree.map(jnp.asarray, found))
    return LoopState(ascent, state.trace.at[ascent.evaluated - 1].set(ascent.elbo, mode="drop")), said
