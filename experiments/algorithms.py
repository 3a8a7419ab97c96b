"""The stochastic algorithms of Tables 7 and 8 on a regression: one run, and the choice of its learning rate.

Adam, PGA and nAdam keep the learning rate 0.001 of the paper. For Snngm, Nagm and VOGN the paper gives none: it is
chosen from {1, 2, 5} x 10^k by the exact bound on the training data at the end of a run with another seed, averaged
over the last five points of its curve, since the last iterate alone is noisy.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.problems import Problem
from natvi import optimize
from natvi.gaussian import CovarianceGaussian
from natvi.gaussian.starts import dense_covariance, diagonal_covariance
from natvi.optimize.rule import replace
from natvi.run.algorithm import Move, State, compose
from natvi.run.batches.row_batches import ArrayBatches

STRUCTURES = ("diagonal", "full")
FIXED = 0.001
# {1, 2, 5} x 10^k from 1e-5 to 50: VOGN wants as much as 5 on a4a, since its S is slow to leave the start n I
GRID = tuple(float(f"{m}e{k}") for k in range(-5, 2) for m in (1, 2, 5))
# where the search on the grid begins
FIRST = {"snngm": 0.002, "nagm": 0.05, "vogn": 0.05}
PILOT_SEED, SEED = 1, 0
LAST = 5  # points of a pilot's curve that count


class Method(NamedTuple):
    """A rule and the derivatives it takes: 1, 2 or "exact"."""

    rule: str
    order: int | str
    unit_start: bool = False  # whether C starts as I instead of the paper's I / sqrt(n)

    @property
    def is_free(self) -> bool:
        """Whether the learning rate has to be chosen."""
        return self.rule in FIRST


RULES = {"Adam": "adam", "PGA": "pga", "nAdam": "nadam", "Snngm": "snngm", "Nagm": "nagm"}
EXACT = {name: Method(rule, "exact") for name, rule in (RULES | {"VOGN": "vogn"}).items()}
ESTIMATED = {f"{name}{k}": Method(rule, k) for k in (1, 2) for name, rule in RULES.items()} | {
    "VOGN": Method("vogn", 1)
}


# VOGN's S is a slow average: 0.999^1000 = 0.37 of its start is left after 1000 steps
UNIT_START = {"VOGN, C = I": Method("vogn", 1, unit_start=True)}


class Run(NamedTuple):
    """The Gaussian at the end, what was recorded on the way, and seconds without compilation and records."""

    gaussian: CovarianceGaussian
    curve: np.ndarray
    seconds: float


def begin(problem: Problem, structure: str, unit: bool = False) -> CovarianceGaussian:
    """Return the paper's start, mu = 0 and C = I / sqrt(n), or one with C = I."""
    make = diagonal_covariance if structure == "diagonal" else dense_covariance
    return make(jnp.zeros(problem.d), 1.0 if unit else problem.n**-0.5)


def follow(
    problem: Problem,
    structure: str,
    method: Method,
    alpha: float,
    seed: int,
    record: Callable[[Any], float],
    last: int | None = None,
) -> Run:
    """Run an algorithm for as long as the problem says; one that leaves the finite numbers stops there.

    Args:
        problem: Target, batch size and length.
        structure: "diagonal" or "full".
        method: Rule and order.
        alpha: The learning rate; of Snngm, alpha_0.
        seed: Of draws and batches.
        record: Called with the Gaussian at every point of the curve, the start included.
        last: Record only so many points at the end.
    """
    # steps of the free rules are linear in alpha: the rule with alpha = 1, shortened, is compiled once for all
    share = alpha if method.is_free else 1.0
    rule = getattr(optimize, method.rule)(alpha / share)
    algorithm = compose(problem.target, rule, CovarianceGaussian, order=method.order)
    # with dtypes made explicit the first stretch and the others have the same types, and are compiled once
    state = jax.tree.map(
        lambda a: jnp.asarray(a, a.dtype), algorithm.init(begin(problem, structure, method.unit_start))
    )
    curve = [record(state.gaussian)] if last is None else []
    seconds = 0.0
    for k, (keys, batches) in enumerate(_inputs(problem, seed)):
        inputs = (algorithm.move, problem.target, state, jnp.asarray(share), batches, keys)
        if k == 0:
            jax.block_until_ready(_advance(*inputs))  # compiles
        began = time.perf_counter()
        state = jax.block_until_ready(_advance(*inputs))
        seconds += time.perf_counter() - began
        curve += [record(state.gaussian)] if last is None or k >= problem.chunks - last else []
        if not bool(jnp.all(jnp.isfinite(state.gaussian.mean))):
            curve.append(np.nan)
            break
    return Run(state.gaussian, np.array(curve, dtype=float), seconds)


def _inputs(problem: Problem, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield keys and the row numbers of all batches for each stretch of steps; with a full batch, keys alone."""
    source = None
    if problem.batch_size is not None:
        source = ArrayBatches(np.arange(problem.n), problem.batch_size, seed=seed)
    for k in range(problem.chunks):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), k), problem.steps)
        batches = None if source is None else jnp.asarray(source.take(k * problem.steps, problem.steps))
        yield keys, batches


@partial(jax.jit, static_argnums=0)
def _advance(move: Move, target: Any, state: State, share: Any, batches: Any, keys: Any) -> State:
    def step(state: State, inputs: tuple[Any, Any]) -> tuple[State, None]:
        key, batch = inputs
        part = target if batch is None else target.with_rows(jax.tree.map(lambda a: a[batch], target.rows))
        moved = move(part, state, key)
        return moved._replace(gaussian=shorten(state.gaussian, moved.gaussian, share, move.rule.curvature)), None

    return jax.lax.scan(step, state, (keys, batches))[0]


def shorten(old: Any, new: Any, share: Any, mean_alone: bool) -> Any:
    """Return the point this share of the way from one Gaussian to another; VOGN's rate is that of its mean alone."""
    between = jax.tree.map(lambda a, b: a + share * (b - a), old, new)
    return replace(new, between.mean, new.factor) if mean_alone else between


def choose(score: Callable[[float], float], first: float) -> tuple[float, dict[str, float | None]]:
    """Climb the grid from `first` to a learning rate whose neighbours score less; return it and all scores.

    A score that is not finite stands for a run that diverged; from there the search goes down.
    """
    scores: dict[int, float] = {}

    def at(k: int) -> float:
        if not 0 <= k < len(GRID):
            return -math.inf
        if k not in scores:
            value = score(GRID[k])
            scores[k] = value if math.isfinite(value) else -math.inf
        return scores[k]

    here = GRID.index(first)
    while at(here) == -math.inf and here > 0:
        here -= 1
    while True:
        # the upper neighbour need not be seen where the lower one is better
        below = at(here - 1)
        best = here - 1 if below > at(here) else max((here, here + 1), key=at)
        if best == here:
            break
        here = best
    return GRID[here], {repr(GRID[k]): v if math.isfinite(v) else None for k, v in sorted(scores.items())}
