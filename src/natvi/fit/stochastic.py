"""The loop of a stochastic fit: compiled chunks, and a stop that noise does not fool.

With a constant step the iterates end up wandering around the optimum, short of it by an amount proportional to the
step. So the fit runs in stages: as soon as the bound, averaged over windows, no longer rises beyond its noise, the step
is halved. Halving it closes about half of the remaining gap; when a whole stage has gained less than `gap` nats, about
that much is left, and the average of the last stage's iterates, which is closer still, is the answer.

Draw t uses key fold_in(seed, t), whatever the chunks: the same seed gives the same bits, also after a resume.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natvi.fit.checkpoint import Checkpoint
from natvi.fit.convergence import Outcome
from natvi.fit.interrupt import Interruption
from natvi.fit.progress import StepProgress
from natvi.precision import to_host

LEAST_SCALE = 2.0**-12
LEAST_WINDOWS = 10
REMEMBERED = 40


class Stage(NamedTuple):
    """What the stopping rule remembers; part of the state, so that a resumed fit stops where it would have."""

    windows: Float[Array, " w"]  # mean bound of the last windows of this stage, NaN where there is none yet
    last_level: Float[Array, ""]  # the bound at the end of the previous stage
    scale: Float[Array, ""]  # the factor by which steps are shortened


class StochasticState(NamedTuple):
    """Everything the next step needs."""

    algorithm: Any  # the recipe's state: Gaussian, rule, last bound
    average: Any  # running mean of the Gaussian's parameters over the stage
    count: Int[Array, ""]
    in_stage: Int[Array, ""]
    stage: Stage


class StochasticFitted(NamedTuple):
    """What the loop hands back, on the host: the averaged Gaussian, the state to go on from, outcome and trace."""

    gaussian: Any
    state: StochasticState
    outcome: Outcome
    trace: np.ndarray


@partial(jax.jit, static_argnums=(0, 3))
def run_window(
    step: Any, state: StochasticState, key: PRNGKeyArray, num_steps: int
) -> tuple[StochasticState, Float[Array, " steps"]]:
    """Take `num_steps` steps; a step that is not finite leaves the state where it was."""

    def body(state: StochasticState, _: None) -> tuple[StochasticState, Float[Array, ""]]:
        moved = step(state.algorithm, jax.random.fold_in(key, state.count))
        old, new = state.algorithm.gaussian, moved.gaussian
        shortened = jax.tree.map(lambda a, b: a + state.stage.scale * (b - a), old, new)
        moved = moved._replace(gaussian=shortened)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(shortened)]))
        kept = jax.tree.map(lambda a, b: jnp.where(finite, b, a), state.algorithm, moved)
        seen = state.in_stage + 1
        average = jax.tree.map(lambda a, b: a + (b - a) / seen, state.average, kept.gaussian)
        elbo = jnp.where(finite, moved.elbo, jnp.nan)
        return StochasticState(kept, average, state.count + 1, seen, state.stage), elbo

    return jax.lax.scan(body, state, None, length=num_steps)


def wander(
    algorithm: Any,
    start: Any,
    *,
    seed: int = 0,
    max_steps: int = 100_000,
    window: int = 100,
    gap: float = 0.05,
    state: StochasticState | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
) -> StochasticFitted:
    """Run a recipe until it has converged in the sense above.

    Args:
        algorithm: A recipe's `init` and `step`.
        start: The Gaussian to start from.
        seed: The same seed gives the same bits.
        max_steps: Steps at most.
        window: Steps whose bounds are averaged.
        gap: The gain of a whole stage, in nats, below which the fit stops.
        state: The state of an earlier run, to go on from.
        progress: Whether to show progress.
        checkpoint: A file to keep the state in; if it exists the fit goes on from it.

    Returns:
        The average of the last stage, the last state, the outcome and the bound of every window.
    """
    for name, value in (("max_steps", max_steps), ("window", window), ("gap", gap)):
        if not value > 0:
            raise ValueError(f"{name} must be positive; got {value!r}.")
    current = state if state is not None else begin(algorithm, start)
    keeper = None if checkpoint is None else Checkpoint(checkpoint, (start, np.asarray(seed)))
    if keeper is not None and state is None:
        current = keeper.resume(current) or current
    current = jax.tree.map(jnp.asarray, current)
    key = jax.random.key(seed)
    trace: list[float] = []
    outcome = None
    with StepProgress(progress) as line, Interruption() as interruption:
        while outcome is None:
            steps = min(window, max_steps - int(current.count))
            current, elbos = run_window(algorithm.step, current, key, steps)
            trace.append(float(np.nanmean(elbos)) if np.isfinite(elbos).any() else np.nan)
            stage, settled = judge_window(current.stage, trace[-1], gap)
            if float(stage.scale) != float(current.stage.scale):
                current = current._replace(in_stage=jnp.zeros((), jnp.int32))
            current = current._replace(stage=stage)
            line.update(int(current.count), trace[-1])
            if keeper is not None:
                keeper.save(current)
            outcome = _outcome(trace[-1], settled, int(current.count) >= max_steps, interruption.asked)
    if keeper is not None:
        keeper.save(current, now=True)
    return StochasticFitted(to_host(current.average), to_host(current), outcome, np.asarray(trace))


def _outcome(window: float, settled: bool, at_limit: bool, asked: bool) -> Outcome | None:
    if np.isnan(window):
        return Outcome.NONFINITE
    if settled:
        return Outcome.CONVERGED
    if at_limit:
        return Outcome.MAX_STEPS
    return Outcome.INTERRUPTED if asked else None


def begin(algorithm: Any, start: Any) -> StochasticState:
    """Return the state before the first step."""
    state = algorithm.init(start)
    zero = jnp.zeros((), jnp.int32)
    stage = Stage(jnp.full(REMEMBERED, jnp.nan), jnp.asarray(-jnp.inf), jnp.ones(()))
    return StochasticState(state, state.gaussian, zero, zero, stage)


def judge_window(stage: Stage, window: float, gap: float) -> tuple[Stage, bool]:
    """Add a window; end the stage when its second half is no better than its first beyond noise."""
    remembered = np.append(np.asarray(stage.windows), window)[1:]
    windows = remembered[~np.isnan(remembered)]
    stage = stage._replace(windows=jnp.asarray(remembered))
    half = len(windows) // 2
    if half < LEAST_WINDOWS // 2:
        return stage, False
    first, second = windows[:half], windows[half:]
    noise = np.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    if second.mean() - first.mean() > noise:
        return stage, False
    level, scale = float(second.mean()), float(stage.scale)
    if level - float(stage.last_level) < gap or scale <= LEAST_SCALE:
        return stage, True
    return Stage(jnp.full(REMEMBERED, jnp.nan), jnp.asarray(level), jnp.asarray(scale / 2)), False
