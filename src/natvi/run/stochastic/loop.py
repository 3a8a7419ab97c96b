"""The loop of a stochastic fit: compiled chunks, and a stop that noise does not fool.

With a constant step the iterates end up wandering around the optimum, short of it by an amount proportional to the
step. So the fit runs in stages: as soon as the bound, averaged over windows, no longer rises (`stages`), the step is
halved. Halving it closes about half of the remaining gap; when a whole stage has gained less than `gap` nats, about
that much is left, and the average of the last stage's iterates, which is closer still, is the answer.

Where the length of a fit and its step sizes are settled beforehand (`settle=False`: nets, with a schedule over epochs)
there are no stages; the last iterate is the answer, or, watched by a validation set, the best one. Where it diverges,
the answer is the end of the last window that was good, and so is the state to go on from.

Draw t uses key fold_in(seed, t) and batch t of its source, whatever the chunks: the same seed gives the same bits, also
after a resume, and in many processes that bring rows of their own (`parts`).
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natvi.run.batches.row_batches import Batches
from natvi.run.fitted import Fitted
from natvi.run.hosts import Hosts, gather, these_hosts
from natvi.run.interrupt import Interruption
from natvi.run.lead import Lead, Pace
from natvi.run.outcome import Outcome
from natvi.run.progress import StepProgress
from natvi.run.settings import check_seed
from natvi.run.stochastic.good import Good, fall_back, holds
from natvi.run.stochastic.stages import Stage, first_stage, judge_window
from natvi.run.stochastic.start import check_start
from natvi.run.stochastic.watch import Watched, first_watched, note_value
from natvi.run.storage.checkpoint import Checkpoint, require_same_shapes

CHUNK_SECONDS = 0.5
LOAD_BYTES = 2**26  # of batches at a time
TRACE_LENGTH = 4096


class StochasticState(NamedTuple):
    """Everything the next step needs."""

    algorithm: Any  # the recipe's state: Gaussian, rule, last bound
    average: Any  # running mean of the Gaussian's parameters over the stage
    count: Int[Array, ""]
    in_stage: Int[Array, ""]
    window: Float[Array, " w"]  # the bounds of the window under way, NaN where a step was not finite
    stage: Stage
    trace: Float[Array, " t"]  # the mean bound of every window
    watched: Watched | None = None  # what a validation set said of every window
    good: Good | None = None  # without stages: where a fit that diverges goes back to


def take_steps(
    move: Any, target: Any, state: StochasticState, key: PRNGKeyArray, load: Any, first: Array, stop: Array
) -> StochasticState:
    """Step up to count `stop`; a step that is not finite leaves the Gaussian where it was.

    `load` is None, or the stacked batches of the steps from count `first` on.
    """

    def body(_: Array, state: StochasticState) -> StochasticState:
        here = target if load is None else target.with_rows(jax.tree.map(lambda a: a[state.count - first], load))
        moved = move(here, state.algorithm, jax.random.fold_in(key, state.count))
        old, new = state.algorithm.gaussian, moved.gaussian
        shortened = jax.tree.map(lambda a, b: a + state.stage.scale * (b - a), old, new)
        moved = moved._replace(gaussian=shortened)
        # a factor with a zero on its diagonal has an infinite log-determinant
        checked = (*jax.tree.leaves(moved), shortened.factor.log_determinant())
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in checked]))
        kept = jax.tree.map(lambda a, b: jnp.where(finite, b, a), state.algorithm, moved)
        seen = state.in_stage + 1
        return state._replace(
            algorithm=kept,
            average=jax.tree.map(lambda a, b: a + (b - a) / seen, state.average, kept.gaussian),
            count=state.count + 1,
            in_stage=seen,
            window=state.window.at[state.count % len(state.window)].set(jnp.where(finite, moved.elbo, jnp.nan)),
        )

    return jax.lax.fori_loop(state.count, stop, body, state)


run_steps = jax.jit(take_steps, static_argnums=0)


def wander(
    algorithm: Any,
    start: Any,
    *,
    batches: Batches | None = None,
    seed: int = 0,
    max_steps: int = 100_000,
    window: int = 100,
    gap: float = 0.05,
    settle: bool = True,
    watch: Callable[[Any], float] | None = None,
    patience: int | None = None,
    watch_from: int = 0,
    state: StochasticState | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 2.0,
    hosts: Hosts | None = None,
    parts: Any = None,
    mark: Any = None,
) -> Fitted:
    """Run a recipe until it has converged in the sense above.

    Args:
        algorithm: A recipe, e.g. `recipes.algorithm_2n(target, snngm(0.01))`.
        start: The Gaussian to start from.
        batches: Where each step's rows come from; by default every step sees the whole target.
        seed: The same seed gives the same bits.
        max_steps: Steps at most, those of earlier runs included.
        window: Steps whose bounds are averaged.
        gap: The gain of a whole stage, in nats, below which the fit stops.
        settle: Whether to run in stages until the bound settles; else all steps are taken, with the rule's step sizes.
        watch: Told the recipe's state at the end of every window, returns how good it is; higher is better.
        patience: Windows without a rise of `watch` after which the fit stops; its best Gaussian is then the answer.
        watch_from: Windows before which patience does not count and no state can be the best.
        state: The state of an earlier run, to go on from.
        progress: Whether to show progress.
        checkpoint: A file to keep the state in; if it exists the fit goes on from it.
        checkpoint_seconds: The least time between two writes.
        hosts: The processes that run this loop together; by default those that JAX was started with.
        parts: `run.stochastic.parts` where each of them brings rows of its own.
        mark: Numbers that tell this model and data from others, for the checkpoint; by default target and start.

    Returns:
        The average of the last stage (without stages, the last or best Gaussian), the outcome, the bound of every
        window and the last state.
    """
    for name, value in (("max_steps", max_steps), ("window", window), ("gap", gap)):
        if isinstance(value, bool) or not value > 0:
            raise ValueError(f"{name} must be positive; got {value!r}.")
    seed = check_seed(seed)
    hosts = these_hosts() if hosts is None else hosts
    _check_batches(algorithm.target, batches)
    target = algorithm.target if batches is None else algorithm.target.with_rows(first_rows(batches))
    check_start(target, start)
    current = _begin(algorithm, start, window, watch is not None, settle)
    settings = f"{algorithm.move} {seed} {window} {gap} {batches and (batches.num_rows, batches.batch_size)}"
    settings += "" if settle and watch is None else f" {settle} {watch is not None} {patience}"
    settings += f" {watch_from}" if watch_from else ""
    mark = (target, start) if mark is None else mark
    keeper = None if checkpoint is None else Checkpoint(checkpoint, mark, checkpoint_seconds, settings)
    if state is None and keeper is not None:
        state = keeper.resume(current) if parts is None else parts.resume(keeper, current)
    if state is not None:
        require_same_shapes(state, current)
        current = jax.tree.map(jnp.array, state)
    run = run_steps if parts is None else parts.run
    runner = _Runner(partial(run, algorithm.move, target), jax.random.key(seed), batches)
    rows_per_step = 0 if batches is None else batches.batch_size
    shown = progress and hosts.is_first
    with StepProgress(shown, rows_per_step=rows_per_step) as line, Interruption() as interruption, runner:
        lead = Lead(Pace(CHUNK_SECONDS, growth=10), interruption, keeper, hosts)  # the first chunk also compiles
        if keeper is not None:
            lead.save_first(current)
        outcome = _judge_end(current, max_steps, patience)
        while outcome is None:
            size, before = len(current.window), int(current.count)
            lead.begin()
            current = runner.run(current, min(max_steps, (before // size + 1) * size, before + lead.turn.steps))
            turn = lead.look(int(current.count) - before)
            if int(current.count) % size == 0:
                current = _end_window(current, gap, settle)
                current = current if watch is None else note_window(current, watch, watch_from)
                line.update(int(current.count), *_window_seen(current))
            if turn.save:
                lead.save(current)
            outcome = _judge_end(current, max_steps, patience)
            if outcome is None and turn.interrupted:
                outcome = Outcome.INTERRUPTED
    if keeper is not None:
        lead.save_last(current)
    host = gather(current)
    count, trace = int(host.count), np.array(host.trace[: int(host.count) // window])
    if outcome is Outcome.NONFINITE and current.good is not None:
        host = gather(fall_back(current, current.good))
    kept = _answer(host, patience)
    watched = np.empty(0) if host.watched is None else np.asarray(host.watched.values)[: len(trace)]
    gaussian = host.average if settle and kept is host.algorithm else kept.gaussian
    return Fitted(gaussian, *_last_bound(host), outcome, trace, count, host, kept, watched)


def _last_bound(state: StochasticState) -> tuple[float, float]:
    """Return the mean of the last estimates of the bound and its standard error, NaN where there are none."""
    finite = np.asarray(state.window, dtype=np.float64)[np.isfinite(state.window)]
    if len(finite) < 2:
        return (float(finite[0]) if len(finite) else np.nan), np.nan
    return float(finite.mean()), float(finite.std(ddof=1)) / len(finite) ** 0.5


class _Runner:
    """Runs the steps of a chunk, fetching batches as they are needed."""

    def __init__(self, run: Callable[..., Any], key: Array, batches: Batches | None) -> None:
        self._run, self._key, self._batches = run, key, batches
        self._load, self._first, self._held = None, 0, 0
        self._fetcher = ThreadPoolExecutor(1)
        self._coming: tuple[int, Future[Any]] | None = None  # the load that begins at a step, on its way
        if batches is not None:
            bytes_per_batch = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(first_rows(batches)))
            self._held = max(1, min(100, LOAD_BYTES // bytes_per_batch))

    def __enter__(self) -> "_Runner":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of what is still being fetched."""
        self._fetcher.shutdown(wait=True, cancel_futures=True)

    def run(self, state: StochasticState, stop: int) -> StochasticState:
        """Step up to `stop`, or to the last of the batches at hand."""
        count = int(state.count)
        if self._batches is not None:
            if self._load is None or not self._first <= count < self._first + self._held:
                self._load = jax.tree.map(jnp.asarray, self._fetch(count))
                self._first = count
            stop = min(stop, self._first + self._held)
        first, last = jnp.asarray(self._first), jnp.asarray(stop, state.count.dtype)
        state = self._run(state, self._key, self._load, first, last)
        state.count.block_until_ready()
        return state

    def _fetch(self, count: int) -> Any:
        """Return the load of batches from a step on, and have the next one fetched while this one is worked on."""
        assert self._batches is not None
        known, self._coming = self._coming, None
        if known is None or known[0] != count:
            if known is not None:
                wait([known[1]])  # a source serves one reader at a time
            load = self._batches.take(count, self._held)
        else:
            load = known[1].result()
        after = count + self._held
        self._coming = after, self._fetcher.submit(self._batches.take, after, self._held)
        return load


def first_rows(batches: Batches) -> Any:
    """Return the first batch."""
    return jax.tree.map(lambda a: jnp.asarray(a[0]), batches.take(0, 1))


def _check_batches(target: Any, batches: Batches | None) -> None:
    if batches is None:
        return
    if not hasattr(target, "with_rows"):
        raise ValueError(
            f"Minibatches need a target made of rows (DesignRows, FunctionRows); got {type(target).__name__}."
        )
    if target.num_rows != batches.num_rows:
        raise ValueError(
            f"The target stands for {target.num_rows:,} rows and the batches come from {batches.num_rows:,}. Give the "
            "target num_rows of the whole data."
        )


def _begin(algorithm: Any, start: Any, window: int, watched: bool = False, settle: bool = True) -> StochasticState:
    """Return the state before the first step."""
    start = jax.tree.map(jnp.asarray, start)
    state = algorithm.init(start)
    zero = jnp.zeros((), jnp.int32)
    blank, trace = jnp.full(window, jnp.nan), jnp.full(TRACE_LENGTH, jnp.nan)
    whole = StochasticState(
        state, start, zero, zero, blank, first_stage(), trace, first_watched(state, TRACE_LENGTH) if watched else None
    )
    whole = whole if settle else whole._replace(good=Good.of(whole))
    # weakly typed numbers would make the second call, or a resumed one, another program to compile
    return jax.tree.map(lambda a: jax.lax.convert_element_type(a, jnp.asarray(a).dtype), whole)


def _end_window(state: StochasticState, gap: float, settle: bool) -> StochasticState:
    """Note the bound of a full window, and go on to the next stage where this one has ended."""
    elbos = np.asarray(state.window)
    level = float(np.nanmean(elbos)) if np.isfinite(elbos).any() else np.nan
    at = int(state.count) // len(elbos) - 1
    trace = state.trace.at[at].set(level, mode="drop")
    if np.isnan(elbos).mean() > 0.5:
        return state._replace(trace=trace)
    if not settle:  # the average is that of a window
        state = state._replace(trace=trace, in_stage=jnp.zeros_like(state.in_stage))
        return state._replace(good=Good.of(state)) if holds(np.asarray(trace[:at]), elbos) else state
    stage = judge_window(state.stage, level, gap)
    ended = float(stage.scale) != float(state.stage.scale)
    in_stage = jnp.zeros_like(state.in_stage) if ended else state.in_stage
    return state._replace(trace=trace, stage=stage, in_stage=in_stage)


def note_window(state: StochasticState, watch: Callable[[Any], float], watch_from: int = 0) -> StochasticState:
    """Ask how good the state at the end of a window is, and remember the best."""
    assert state.watched is not None
    at = int(state.count) // len(state.window) - 1
    value = watch(state.algorithm)
    return state._replace(watched=note_value(state.watched, at, value, state.algorithm, at >= watch_from))


def _window_seen(state: StochasticState) -> tuple[float, float | None]:
    """Return the bound of the last window and what was watched, for the line of progress."""
    at = int(state.count) // len(state.window) - 1
    seen = None if state.watched is None or at >= TRACE_LENGTH else float(state.watched.values[at])
    return float(state.trace[at]), seen


def _answer(state: StochasticState, patience: int | None) -> Any:
    """Return the recipe's state that is the answer: the last, or the best that patience has waited for."""
    if patience is not None and state.watched is not None and np.isfinite(state.watched.best_value):
        return state.watched.best
    return state.algorithm


def _judge_end(state: StochasticState, max_steps: int, patience: int | None = None) -> Outcome | None:
    count, size = int(state.count), len(state.window)
    filled = (count - 1) % size + 1  # steps of the last window, which max_steps may have cut short
    if count and (filled == size or count >= max_steps) and np.isnan(np.asarray(state.window)[:filled]).mean() > 0.5:
        return Outcome.NONFINITE
    if bool(state.stage.settled):
        return Outcome.CONVERGED
    if patience is not None and state.watched is not None and int(state.watched.since_best) >= patience:
        return Outcome.STOPPED_EARLY
    return Outcome.MAX_STEPS if count >= max_steps else None
