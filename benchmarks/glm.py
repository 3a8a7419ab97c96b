"""Logistic regression: natvi's exact posterior beside point estimates and beside other variational methods.

Every tool stays warm in a process of its own, at one thread and at two; the fast ones take turns. natvi and the point
estimates go from arrays in memory to a fitted object. Times are minima over the runs; the first call, which compiles,
is the cold time. The slow ones are compiled apart, so that one run of them will do.
"""

import contextlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import glm_problems
from benchmarks.glm_worker import TOOLS, VI_STEPS
from benchmarks.report import Report
from benchmarks.workers import Worker, WorkerError, WorkerTimeoutError, thread_counts
from experiments import nuts_reference
from natvi.metrics.mmd import mmd_measure
from natvi.x64 import float64

NAMES = glm_problems.NAMES
FIRST_LOOK = "natvi, first look at the bound"
QUICK_TOOLS = ("natvi exact", FIRST_LOOK, "sklearn newton-cholesky", "sklearn lbfgs", "statsmodels GLM")
SLOW_TOOLS = tuple(tool for tool in TOOLS if tool not in QUICK_TOOLS)
RUNS, QUICK_RUNS = 15, 3
LONG_CALL, LIMIT = 30.0, 400.0  # seconds: a call so long needs no second; here a call is given up
SETTINGS = {
    "statistic": "minimum over the runs; the tools take turns",
    "model": "logistic regression, prior N(0, 10^2) on every coefficient, intercept among the columns",
    "natvi exact": "natvi.glm_arrays(X, y, family='bernoulli', prior=10).fit(method='gva'), default tolerance",
    "sklearn": "LogisticRegression(C=100, fit_intercept=False), tol 1e-8 (newton-cholesky), 1e-6 (lbfgs)",
    FIRST_LOOK: "the same with max_steps=1: for peers whose best bound is below the one it has then",
    "statsmodels GLM": "no prior; standard errors",
    "variational peers": (
        f"{VI_STEPS:,} Adam steps from zero, one draw, step size 0.01 falling to 0.0001; float64; the best of 20 looks"
    ),
    "NumPyro, BlackJAX": (
        "seconds are of the steps alone, without compilation and looks; cold_seconds are those of the first run with "
        f"the compilation. A run of more than {LONG_CALL:.0f} seconds is not repeated, and a call of more than "
        f"{LIMIT:.0f} seconds is given up"
    ),
    "NUTS": "2 chains from zero, 1,000 warm-up steps and 1,000 draws each",
    "mmd_measure": "from NUTS started at the exact Gaussian: 50,000 draws (German), 10,000 (a4a), 2,000 (simulated)",
    "BlackJAX Pathfinder": "1.7.1 seems to have a sign error in the mean of its draws when the path stops early",
}


def run(report: Report, only: Sequence[str] = ()) -> None:
    """Measure all problems, or those named."""
    report.settings |= SETTINGS
    chosen = {name.lower() for name in only or NAMES}
    for name in NAMES:
        if name.lower() not in chosen:
            continue
        try:
            problem = glm_problems.load(name)
        except FileNotFoundError as error:
            report.note(f"{name} left out: {error}")
            continue
        fast = _fast(report, problem)
        if not report.quick:
            _slow(report, problem, fast)


class Ours(NamedTuple):
    """natvi's best seconds to the end, and to its first look at the bound, with that bound."""

    seconds: float
    first_seconds: float
    first_bound: float

    def seconds_to(self, bound: float) -> float:
        """Return the seconds after which the bound is known to be above this one."""
        return self.first_seconds if bound < self.first_bound else self.seconds


def _fast(report: Report, problem: Any) -> Ours:
    """Time natvi and the point estimates in turns; return natvi's best."""
    rounds = QUICK_RUNS if report.quick else RUNS
    with contextlib.ExitStack() as stack:
        workers: dict[tuple[str, int], Worker] = {}
        first: dict[tuple[str, int], Any] = {}
        for tool in QUICK_TOOLS:
            for threads in thread_counts():
                with _noted(report, tool, problem.name):
                    worker = stack.enter_context(_start(tool, threads))
                    worker.ask("load", problem.name)
                    first[tool, threads] = worker.ask("fit")
                    workers[tool, threads] = worker
        best = {key: np.inf for key in workers}
        last: dict[tuple[str, int], Any] = {}
        for _ in range(rounds):
            for key, worker in workers.items():
                if best[key] * rounds < 60 or not np.isfinite(best[key]):
                    last[key] = worker.ask("fit")
                    best[key] = min(best[key], last[key]["seconds"])
        for (tool, threads), worker in workers.items():
            answer = last[tool, threads]
            metrics = {"seconds": best[tool, threads], "cold_seconds": first[tool, threads]["seconds"]}
            metrics |= {name: answer[name] for name in ("elbo", "iterations", "outcome") if name in answer}
            if threads == 1 and not report.quick:
                metrics |= _discrepancy(problem, answer)
            report.add(problem.name, tool, metrics, threads=threads, versions=worker.versions)
        fastest = {tool: min(s for (t, _), s in best.items() if t == tool) for tool in {t for t, _ in best}}
        versions = workers["natvi exact", 1].versions
        for tool, seconds in fastest.items():
            if not tool.startswith("natvi"):
                ratio = {"ratio_of_seconds": fastest["natvi exact"] / seconds}
                report.add(problem.name, f"natvi exact / {tool}", ratio, threads="best", versions=versions)
        return Ours(fastest["natvi exact"], fastest[FIRST_LOOK], last[FIRST_LOOK, 1]["elbo"])


def _slow(report: Report, problem: Any, ours: Ours) -> None:
    """Time the others once each, warm, at the threads of the machine."""
    threads = thread_counts()[-1]
    for tool in SLOW_TOOLS:
        with _noted(report, tool, problem.name), _start(tool, threads) as worker:
            worker.ask("load", problem.name)
            cold = worker.ask("fit", limit=LIMIT)
            answer = cold if cold["seconds"] > LONG_CALL else worker.ask("fit", limit=LIMIT)
            metrics = {"seconds": answer["seconds"], "cold_seconds": cold["seconds"] + cold["compile_seconds"]}
            metrics |= {k: answer[k] for k in ("elbo", "elbo_se", "seconds_to_best", "least_ess") if k in answer}
            seconds = answer.get("seconds_to_best", answer["seconds"])
            metrics["times_slower_than_natvi"] = seconds / ours.seconds
            if "elbo" in answer:
                metrics["times_slower_to_its_bound"] = seconds / ours.seconds_to(answer["elbo"])
            metrics |= _discrepancy(problem, answer)
            report.add(problem.name, tool, metrics, threads=threads, versions=worker.versions)


def _discrepancy(problem: Any, answer: dict[str, Any]) -> dict[str, float]:
    """Return the MMD measure of a Gaussian against NUTS, whose draws are made once (`experiments.nuts_reference`)."""
    if "arrays" not in answer or problem.name not in nuts_reference.PROBLEMS:
        return {}
    with np.load(answer["arrays"]) as file:
        moments = dict(file)
    if "covariance" not in moments:
        return {}
    with float64():
        known = nuts_reference.reference(nuts_reference.PROBLEMS[problem.name](False))["draws"]
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(moments["mean"], moments["covariance"], 20_000, method="cholesky")
    return {"mmd_measure": mmd_measure(draws, known.reshape(-1, draws.shape[1])).mean}


def _start(tool: str, threads: int) -> Worker:
    return Worker([sys.executable, "-m", "benchmarks.glm_worker", tool], threads)


@contextlib.contextmanager
def _noted(report: Report, tool: str, problem: str):
    try:
        yield
    except WorkerTimeoutError as error:
        report.note(f"{tool} given up on {problem}: it {error}, the limit of a call")
    except WorkerError as error:
        report.note(f"{tool} left out on {problem}: {error}")
