"""One optimizer step against one bare evaluation of the log-density's gradient, first order, one draw.

Both run many times inside one compiled loop, so that neither pays for calls from Python: gradients along a slowly
drifting theta, and steps of Snngm with natural gradients. Runs alternate; the fastest of each counts. Every problem is
measured on one core and on all, in a process of its own: a gradient over many rows gains from further cores, work
on a small factor does not.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import natvi
from benchmarks.report import Report
from natvi import optimize
from natvi.data import load_toenail
from natvi.families.table import FAMILIES
from natvi.gaussian.starts import arrow_precision, dense_covariance, diagonal_covariance
from natvi.linalg import ArrowVector
from natvi.models.mixed.target import build_target
from natvi.run.algorithm import compose
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.x64 import float64

NAMES = ("a4a", "toenail", "wide")
RULES = {"snngm": lambda: optimize.snngm(1e-4), "adam": lambda: optimize.adam(1e-4)}
RUNS, QUICK_RUNS = 15, 3
PACKAGES = ("natvi", "jax", "jaxlib", "numpy")


class Problem(NamedTuple):
    """A target, a start, the most a step may cost, and how many evaluations make one timed run."""

    name: str
    target: Any
    start: Any
    allowed: float
    repeats: int


def logistic(X: np.ndarray, y: np.ndarray) -> DesignRows:
    """Return logistic regression under the paper's prior."""
    rows = Observations(jnp.asarray(X), jnp.asarray(y))
    return DesignRows(rows, IndependentNormal.around_zero(X.shape[1]), FAMILIES["bernoulli"], len(y))


def a4a() -> Problem:
    """Dense C, d = 124."""
    from natvi.data import load_a4a

    train, _ = load_a4a()
    start = dense_covariance(jnp.zeros(train.X.shape[1]), len(train.y) ** -0.5)
    return Problem("a4a, dense C, d = 124", logistic(train.X, train.y), start, 1.5, 200)


def toenail() -> Problem:
    """The arrow, 294 groups."""
    model = natvi.glmm("infect ~ trt*time + (1 | idnr)", load_toenail(), family="bernoulli", prior="paper")
    target, *_ = build_target(model.design, model.y, model.family, model.prior)
    n, g = len(model.design.group_labels), len(model.prior.mean)
    start = arrow_precision(ArrowVector(jnp.zeros((1, n)), jnp.zeros(g)), len(model.y) ** -0.5)
    return Problem(f"Toenail, arrow T, d = {n + g}", target, start, 3.0, 1000)


def wide() -> Problem:
    """Diagonal C, d = 100,000."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 100_000))
    y = (rng.random(1000) < 0.5).astype(float)
    start = diagonal_covariance(jnp.zeros(100_000), 1000**-0.5)
    return Problem("simulated logistic, n = 1,000, diagonal, d = 100,000", logistic(X, y), start, 1.5, 5)


def problems(only: list[str]) -> Iterator[Problem]:
    """Build the problems asked for, one after the other: the last needs most of a gigabyte."""
    makers = {"a4a": a4a, "toenail": toenail, "wide": wide}
    for name in [name.lower() for name in only] or NAMES:
        yield makers[name]()


def gradients(target: Any, theta: Any, repeats: int) -> Callable[[], Any]:
    """Return a run of bare gradients, each at a theta that depends on the one before."""

    @jax.jit
    def run(target: Any, theta: Any) -> Any:
        def body(_: Any, theta: Any) -> Any:
            _, grad = jax.value_and_grad(target.value)(theta)
            return jax.tree.map(lambda t, g: t + 1e-12 * g, theta, grad)

        return jax.lax.fori_loop(0, repeats, body, theta)

    return lambda: jax.block_until_ready(run(target, theta))


def steps(algorithm: Any, start: Any, repeats: int) -> Callable[[], Any]:
    """Return a run of optimizer steps."""

    @jax.jit
    def run(target: Any, state: Any, key: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            return algorithm.move(target, state, jax.random.fold_in(key, i))

        return jax.lax.fori_loop(0, repeats, body, state)

    state = jax.tree.map(lambda a: jnp.asarray(a, jnp.asarray(a).dtype), algorithm.init(start))
    return lambda: jax.block_until_ready(run(algorithm.target, state, jax.random.key(0)))


def run(report: Report, only: list[str]) -> None:
    """Time every problem; skipped with a note where its data are not there."""
    rounds = QUICK_RUNS if report.quick else RUNS
    report.settings |= {"runs": rounds, "statistic": "minimum", "order": 1, "draws": 1, "precision": "float64"}
    versions = {name: metadata.version(name) for name in PACKAGES}
    cores = sorted(os.sched_getaffinity(0))
    for name in [name.lower() for name in only] or NAMES:
        for used in dict.fromkeys((tuple(cores[:1]), tuple(cores))):
            try:
                found = _apart(_measure, used, name, rounds)
            except FileNotFoundError as error:
                report.note(f"{name} left out: {error}")
                break
            about = {"versions": versions, "threads": len(used)}
            for tool, metrics in found.tools.items():
                report.add(found.problem, tool, metrics, **about)


class Measured(NamedTuple):
    """The name of a problem, and the figures of every tool."""

    problem: str
    tools: dict[str, dict[str, float]]


def _apart(function: Callable[..., Measured], cores: tuple[int, ...], *args: Any) -> Measured:
    """Call a function in a fresh process that may use these cores only: XLA counts them once, when it starts."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, os.sched_setaffinity, (0, cores)) as pool:
        return pool.submit(function, *args).result()


def _measure(name: str, rounds: int) -> Measured:
    with float64():
        (problem,) = problems([name])
        runs = {"gradient": gradients(problem.target, problem.start.mean, problem.repeats)}
        for rule, make in RULES.items():
            algorithm = compose(problem.target, make(), type(problem.start))
            runs[rule] = steps(algorithm, problem.start, problem.repeats)
        best = dict.fromkeys(runs, np.inf)
        for one in runs.values():
            one()  # compile
        for _ in range(rounds):
            for tool, one in runs.items():
                began = time.perf_counter()
                one()
                best[tool] = min(best[tool], (time.perf_counter() - began) / problem.repeats)
    tools = {"gradient alone": {"microseconds": 1e6 * best["gradient"]}}
    for rule in RULES:
        ratio = best[rule] / best["gradient"]
        tools[f"step of {rule}"] = {"microseconds": 1e6 * best[rule], "ratio": ratio, "allowed": problem.allowed}
    return Measured(problem.name, tools)
