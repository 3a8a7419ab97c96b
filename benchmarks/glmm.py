"""Mixed models: natvi beside glmmTMB, lme4 and other variational methods, and natvi alone on growing data.

All tools take turns in one run, each in a process that stays warm. A whole call goes from a formula and a data
frame in memory to a fitted object with standard errors or posterior sds. Values are minima over the runs. Stochastic
methods run once, afterwards (`glmm_vi`).
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import natvi
from benchmarks import glmm_vi, growth
from benchmarks.peers import PEERS, joined, largest_difference, start_peer
from benchmarks.report import Report
from benchmarks.workers import Worker, WorkerError, WorkerTimeoutError, thread_counts
from natvi.data.external import VARIABLE

LONG_CALL = 60.0  # seconds; so long a first call counts as a run: warming up changes nothing
VERY_LONG_CALL = 300.0  # and after one as long as this there is no second
LIMIT = 240.0  # here a peer's call is given up
COLD_RUNS = 3
QUICK_RUNS = 2
NATVI = [sys.executable, "-m", "benchmarks.natvi_worker"]
METHODS = ("gva", "marginal", "auto")
OURS = tuple(f"natvi {method}" for method in METHODS)
EXACT = OURS[0]


@dataclass(frozen=True)
class Problem:
    """A data set with its model and how often it is fitted."""

    name: str
    load: Callable[[], Any]
    formula: str
    family: str
    runs: int = 15
    peer_runs: int = 15
    slow_runs: int = 5  # of the methods that go on from the Gaussian


PROBLEMS = (
    Problem("Epilepsy", natvi.data.load_epilepsy, "y ~ base*trt + age + visit + (1 | subject)", "poisson"),
    Problem("sleepstudy", natvi.data.load_sleepstudy, "Reaction ~ Days + (Days | Subject)", "gaussian"),
    Problem("Toenail", natvi.data.load_toenail, "infect ~ trt*time + (1 | idnr)", "bernoulli"),
    Problem("HERS", natvi.data.load_hers, "y ~ age + bmi + htnmeds + visit + (1 | pptid)", "bernoulli", 7, 7, 3),
    Problem("Diabetes", natvi.data.load_diabetes, "y ~ hba1c*diagnosis + (1 | patient_nbr)", "bernoulli", 5, 3, 1),
)
NAMES = (*(problem.name for problem in PROBLEMS), *growth.NAMES)


SETTINGS = {
    "statistic": "minimum over the runs; the tools take turns",
    "natvi": "natvi.glmm(formula, frame, family, prior='paper').fit(method); auto includes the verdict",
    "glmmTMB": "glmmTMB(formula, data, family, control = glmmTMBControl(parallel = threads))",
    "lme4": "glmer(formula, data, family) with nAGQ = 1, or lmer(formula, data, REML = FALSE)",
    "print": "repr(result) and print(summary(fit))",
    "formulas": {problem.name: f"{problem.formula}, {problem.family}" for problem in PROBLEMS},
}


@dataclass
class Contender:
    """A tool at a number of threads, with what its calls gave; `model` is what it is asked to fit."""

    tool: str
    worker: Worker
    model: tuple[str, ...]
    runs: int
    first: dict[str, Any]
    calls: list[dict[str, Any]] = field(default_factory=list)
    prints: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The shortest whole call."""
        return self.least("seconds")

    def least(self, metric: str) -> float:
        """The smallest value of a metric over the calls."""
        return min(call[metric] for call in self.calls)

    def run(self) -> None:
        """One more call, if one is still due."""
        if len(self.calls) < self.runs:
            self.calls.append(self.worker.ask("fit", *self.model))
            self.prints.append(self.worker.ask("print")["seconds"])


def run(report: Report, only: Sequence[str] = ()) -> None:
    """Measure all problems, or those named."""
    chosen = {name.lower() for name in only or NAMES}
    report.settings |= SETTINGS
    for problem in PROBLEMS:
        if problem.name.lower() in chosen:
            try:
                _measure(report, problem)
            except (WorkerError, ValueError) as error:
                report.note(f"{problem.name} stopped: {error}")
    growth.run(report, [name for name in growth.NAMES if name.lower() in chosen])


def _measure(report: Report, problem: Problem) -> None:
    if problem.name == "Diabetes" and not os.environ.get(VARIABLE):
        return report.note(f"Diabetes left out: {VARIABLE} does not name the folder of its data.")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "data.csv"
        problem.load().to_csv(path, index=False)
        contenders = _contenders(report, problem, path, stack)
        try:
            _take_turns(report, problem, contenders)
        finally:  # whatever happens, what was measured is told
            _tell(report, problem, [contender for contender in contenders if contender.calls])
        _cold(report, problem, path, contenders)
        for contender in contenders:
            contender.worker.close()
        glmm_vi.run(report, glmm_vi.Case(problem.name, problem.family, problem.formula, path))


def _take_turns(report: Report, problem: Problem, contenders: list[Contender]) -> None:
    for _ in range(max((contender.runs for contender in contenders), default=0)):
        for contender in list(contenders):
            try:
                contender.run()
            except WorkerError as error:
                report.note(f"{contender.tool} stopped on {problem.name}: {error}")
                contenders.remove(contender)


def _contenders(report: Report, problem: Problem, path: Path, stack: contextlib.ExitStack) -> list[Contender]:
    """Start every tool at every number of threads, and let each make its first call."""
    ready = []
    for threads in thread_counts():
        for tool in (*OURS, *PEERS):
            large = problem.name == "Diabetes"
            if tool == "lme4" and (threads > 1 or (report.quick and large)):
                continue
            if tool in OURS[1:] and large and (report.quick or threads < thread_counts()[-1]):
                continue  # a minute or more
            report.say(f"{problem.name}: starting {tool}, threads {threads}")
            try:
                worker = Worker(NATVI, threads) if tool in OURS else start_peer(tool, threads)
                stack.enter_context(worker)
                ready.append(_first_call(report, problem, path, tool, worker))
            except WorkerError as error:
                report.note(f"{tool} (threads: {threads}) left out on {problem.name}: {error}")
                if isinstance(error, WorkerTimeoutError):
                    limit = {"seconds_more_than": LIMIT}
                    report.add(problem.name, tool, limit, threads=threads, versions=worker.versions)
    return ready


def _first_call(report: Report, problem: Problem, path: Path, tool: str, worker: Worker) -> Contender:
    runs = problem.peer_runs if tool in PEERS else problem.runs if tool == EXACT else problem.slow_runs
    model: tuple[str, ...] = (problem.family, problem.formula)
    if tool in OURS:
        model = (*model, METHODS[OURS.index(tool)])
    worker.ask("load", path)
    first = worker.ask("fit", *model, limit=None if tool == EXACT else LIMIT)
    if first["seconds"] > VERY_LONG_CALL:
        runs = 1
    contender = Contender(tool, worker, model, min(runs, QUICK_RUNS) if report.quick else runs, first)
    printed = worker.ask("print")["seconds"]
    if first["seconds"] > LONG_CALL:
        contender.calls.append(first)
        contender.prints.append(printed)
    return contender


def _tell(report: Report, problem: Problem, contenders: list[Contender]) -> None:
    by_tool = {tool: {c.worker.threads: c for c in contenders if c.tool == tool} for tool in (*OURS, *PEERS)}
    exact = by_tool[EXACT]
    for contender in contenders:
        metrics: dict[str, Any] = {
            "seconds": contender.seconds,
            "runs": len(contender.calls),
            "print_seconds": min(contender.prints),
        }
        call = contender.calls[-1]
        if contender.tool in OURS:
            metrics |= {name: contender.least(name) for name in ("fit_seconds", "climb_seconds")}
            metrics |= {name: call[name] for name in ("method", "elbo", "outcome", "iterations")}
        else:
            metrics |= {"log_likelihood": call["loglik"]}
            if 1 in exact:
                metrics["fixed_effects_max_difference_in_sds"] = largest_difference(exact[1].calls[-1], call)
            metrics["remarks"] = joined(call["remarks"]) or None
        _add(report, problem, contender, contender.tool, metrics)
    for peer in PEERS:
        for tool in OURS:
            _ratios(report, problem, (tool, peer), by_tool[tool], by_tool[peer])


def _ratios(
    report: Report, problem: Problem, names: tuple[str, str], ours: dict[int, Contender], theirs: dict[int, Contender]
) -> None:
    """Our time over theirs: whole calls, and our optimisation alone against their whole call."""
    pairs: list[tuple[int | str, Contender, Contender]] = []
    tool, peer = names
    if 1 in ours and 1 in theirs:
        pairs.append((1, ours[1], theirs[1]))
    if ours and theirs:
        fastest = [min(side.values(), key=lambda contender: contender.seconds) for side in (ours, theirs)]
        pairs.append(("best", fastest[0], fastest[1]))
    for threads, a, b in pairs:
        settings = {"natvi_threads": a.worker.threads, f"{peer}_threads": b.worker.threads}
        metrics = {"ratio_of_seconds": a.seconds / b.seconds}
        if tool == EXACT:
            metrics["ratio_of_optimisation_to_whole_call"] = a.least("climb_seconds") / b.seconds
        versions = a.worker.versions | b.worker.versions
        report.add(problem.name, f"{tool} / {peer}", metrics, threads=threads, versions=versions, settings=settings)


def _cold(report: Report, problem: Problem, path: Path, contenders: list[Contender]) -> None:
    """Fresh processes: from nothing to the end of the first call, without the reading of the data."""
    for contender in contenders:
        if contender.worker.threads == 1 and contender.tool in PEERS:
            starts = [(contender.worker.start_seconds, contender.first["seconds"])]
            _add(report, problem, contender, f"{contender.tool}, fresh process", _cold_metrics(starts))
    slow = [] if report.quick or problem.name == "Diabetes" else [OURS[-1]]
    latest = {contender.tool: contender for contender in contenders}  # at most threads
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        for contender in (latest[tool] for tool in [EXACT, *slow] if tool in latest):
            runs = 1 if report.quick or contender.tool in slow else COLD_RUNS
            starts = [_fresh(contender, path, {}) for _ in range(runs)]
            name = f"{contender.tool}, fresh process"
            _add(report, problem, contender, name, _cold_metrics(starts))
            starts = [_fresh(contender, path, environment) for _ in range(runs + 1)][1:]
            _add(report, problem, contender, f"{name}, compiled before", _cold_metrics(starts))


def _fresh(contender: Contender, path: Path, environment: dict[str, str]) -> tuple[float, float]:
    with Worker(NATVI, contender.worker.threads, environment) as worker:
        worker.ask("load", path)
        return worker.start_seconds, worker.ask("fit", *contender.model)["seconds"]


def _cold_metrics(starts: list[tuple[float, float]]) -> dict[str, Any]:
    start, first = min(starts, key=sum)
    return {
        "cold_seconds": start + first,
        "start_seconds": start,
        "first_call_seconds": first,
        "runs": len(starts),
    }


def _add(report: Report, problem: Problem, contender: Contender, name: str, metrics: dict[str, Any]) -> None:
    worker = contender.worker
    settings: dict[str, Any] = {"formula": problem.formula, "family": problem.family}
    if "fresh" not in name:
        settings |= {"runs": len(contender.calls), "first_call_counts": contender.first in contender.calls}
    report.add(problem.name, name, metrics, threads=worker.threads, versions=worker.versions, settings=settings)
