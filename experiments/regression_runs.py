"""All runs of a regression: every algorithm and structure, with the learning rates they were chosen from.

A run is made once (`experiments.memory`): table and figure share it, and an interrupted experiment goes on where it
stopped.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.algorithms import FIRST, FIXED, GRID, LAST, PILOT_SEED, SEED, STRUCTURES, Method, choose, follow
from experiments.memory import Arrays, recall
from experiments.problems import Problem
from experiments.scores import Score, bound, predictive, score
from natvi.run.exact.rows import climb_rows
from natvi.x64 import float64

Say = Callable[[str], None]
EXACT_ROW = "natvi exact"
SETS = 6  # of draws of the exact row: there is no run whose luck would be larger than that of the draws
GAP = "nats below the best bound"
KEPT = (
    "Runs are kept (experiments/memory.py) and shared by table and figure: the seconds of the whole, in the last line, "
    "leave out those that were kept already."
)


def run_all(problem: Problem, methods: dict[str, Method], reference: np.ndarray | None, say: Say) -> dict[Any, Arrays]:
    """Return what every (row, structure) found: scores, curve, seconds, and the grid of its learning rate.

    Args:
        problem: The data and the length of a run.
        methods: The algorithms by row.
        reference: Draws from the posterior for the discrepancy, or None.
        say: Told of every run.
    """
    found: dict[Any, Arrays] = {}
    for structure in STRUCTURES:
        for row, method in methods.items():
            found[row, structure] = one(problem, structure, method, reference)
            say(f"{problem.name}, {structure}, {row}: {summary(found[row, structure])}")
        found[EXACT_ROW, structure] = exact(problem, structure, reference)
        say(f"{problem.name}, {structure}, {EXACT_ROW}: {summary(found[EXACT_ROW, structure])}")
    return found


def one(problem: Problem, structure: str, method: Method, reference: np.ndarray | None) -> Arrays:
    """Choose the learning rate if it is free, run, and score."""
    settings = problem.settings | {"structure": structure, "rule": method.rule, "order": method.order}
    settings |= {"seed": SEED, "pilot_seed": PILOT_SEED, "first": FIRST.get(method.rule, FIXED)}

    settings |= {"unit_start": True} if method.unit_start else {}

    def pilot(alpha: float) -> float:
        run = follow(problem, structure, method, alpha, PILOT_SEED, lambda q: float(bound(problem.target, q)), LAST)
        return float(np.mean(run.curve))

    def compute() -> Arrays:
        alpha, grid = FIRST.get(method.rule, FIXED), {}
        if method.is_free and problem.pilots:
            alpha, grid = choose(pilot, alpha)
        run = follow(problem, structure, method, alpha, SEED, recorder(problem))
        result = score(problem, run.gaussian, reference, SEED)
        about = {"curve": run.curve, "alpha": alpha, "grid": json.dumps(grid)}
        return packed(result, run.gaussian, run.seconds) | about

    name, settings = f"{problem.name}-{structure}-{method.rule}{method.order}", settings | _about(reference)
    kept = recall(name, settings, compute)
    # a choice inside the grid does not depend on where the grid ends; one at the end of a shorter grid is made anew
    return recall(name, settings | {"grid_end": GRID[-1]}, compute) if was_cut_short(kept) else kept


def was_cut_short(run: Arrays) -> bool:
    """Whether the chosen learning rate has an upper neighbour that was never tried: the grid was shorter then."""
    tried = [float(alpha) for alpha in json.loads(str(run["grid"]))]
    return bool(tried) and max(tried) == float(run["alpha"]) < GRID[-1]


def exact(problem: Problem, structure: str, reference: np.ndarray | None) -> Arrays:
    """Maximise the exact bound, and score; seconds are those of a second run, when all is compiled."""

    def compute() -> Arrays:
        shape = "diagonal" if structure == "diagonal" else "dense"
        with float64():
            climb_rows(problem.target, shape)
            began = time.perf_counter()
            best = climb_rows(problem.target, shape)
            seconds = time.perf_counter() - began
            gaussian = jax.tree.map(jnp.asarray, best.gaussian)
        scores = [score(problem, gaussian, reference, SEED + k) for k in range(SETS)]
        averaged = scores[0]._replace(mmd=float(np.mean([one.mmd for one in scores])))
        spread = float(np.std([one.mmd for one in scores], ddof=1) / SETS**0.5)
        return packed(averaged, gaussian, seconds) | {"steps": len(best.trace), "mmd_se": spread}

    settings = problem.settings | {"structure": structure, "exact": "natvi.run.exact.rows.climb_rows", "sets": SETS}
    return recall(f"{problem.name}-{structure}-exact", settings | _about(reference), compute)


def recorder(problem: Problem) -> Callable[[Any], float]:
    """Return what a curve shows: test log-likelihood, or the exact bound where there are no test rows."""
    if problem.test is None:
        return lambda gaussian: float(bound(problem.target, gaussian))
    return lambda gaussian: float(predictive(problem.target, problem.test, gaussian))


def packed(result: Score, gaussian: Any, seconds: float) -> Arrays:
    """Return a score and the Gaussian behind it as arrays."""
    factor = gaussian.factor
    return result._asdict() | {"mean": gaussian.mean, "factor": factor[0], "seconds": seconds}


def measured(found: dict[Any, Arrays], row: str, structure: str, metric: str) -> Any:
    """Return a metric of a run; the gap is that to the best bound of the structure, in nats."""
    if metric != GAP:
        return found[row, structure][metric]
    return found[EXACT_ROW, structure]["elbo"] - found[row, structure]["elbo"]


def grids(found: dict[Any, Arrays]) -> dict[str, Any]:
    """Return the final bounds of the pilot runs by learning rate, and what was chosen; None: the run diverged."""
    free = {key: run for key, run in found.items() if json.loads(str(run.get("grid", "{}")))}
    return {
        f"{row}, {structure}": {"chosen": float(run["alpha"]), "elbo": json.loads(str(run["grid"]))}
        for (row, structure), run in free.items()
    }


def summary(run: Arrays) -> str:
    """Return a line for the person who waits."""
    parts = [f"{name} {float(run[name]):.3f}" for name in Score._fields if np.isfinite(run[name])]
    alpha = f", alpha {float(run['alpha']):g}" if "alpha" in run else ""
    return ", ".join(parts) + f", {float(run['seconds']):.2f} s{alpha}"


def _about(reference: np.ndarray | None) -> dict[str, Any]:
    return {"reference": None if reference is None else len(reference), "version": 1}
