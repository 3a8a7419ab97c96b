"""Crossed and nested models: natvi's answers and time beside lme4, glmmTMB and NUTS, and its growth with rows.

Whole calls from a formula and a frame in memory, each tool warm in a process of its own; the tools take turns and the
shortest call counts. Answers of `auto` are in `crossed_answers`.
"""

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.crossed_truth import NUTS

from benchmarks.crossed_answers import answer
from benchmarks.crossed_problems import GROWTH, PROBLEMS, Problem
from benchmarks.peers import joined, largest_difference, start_peer
from benchmarks.report import Report
from benchmarks.workers import Worker, WorkerError, thread_counts

NATVI = [sys.executable, "-m", "benchmarks.natvi_worker"]
RUNS, QUICK_RUNS = 5, 1
SIZES, QUICK_SIZES = (20_000, 200_000, 2_000_000), (20_000,)
ANSWERS = tuple(f"answers-{name}" for name in PROBLEMS)
NAMES = (*PROBLEMS, "growth", "answers", *ANSWERS)  # a problem's name stands for its time; answers are those of all


def run(report: Report, only: Sequence[str]) -> None:
    """Measure all problems, or those named."""
    report.settings |= {
        "statistic": "shortest of the calls; the tools take turns",
        "natvi": "natvi.glmm(formula, frame, family).fit(method='gva'), whole call, warm; answers by method='auto'",
        "lme4": "lmer(formula, data, REML = FALSE), or glmer(formula, data, family)",
        "glmmTMB": "glmmTMB(formula, data, family, control = glmmTMBControl(parallel = threads))",
        "NUTS": NUTS,
        "formulas": {name: f"{own.formula}, {own.family}" for name, own in PROBLEMS.items()} | {"growth": GROWTH},
    }
    chosen = {part.lower() for part in only} or set(NAMES) - set(ANSWERS)
    for name, problem in PROBLEMS.items():
        if name in chosen:
            _speed(report, name, problem)
    if "growth" in chosen:
        for rows in QUICK_SIZES if report.quick else SIZES:
            _growth(report, rows)
    if "answers" in chosen:
        for name, problem in PROBLEMS.items():
            answer(report, name, problem)
    for name, problem in PROBLEMS.items():
        if f"answers-{name}" in chosen:
            answer(report, name, problem)


def _speed(report: Report, name: str, problem: Problem) -> None:
    runs, calls = QUICK_RUNS if report.quick else RUNS, {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "rows.csv"
        problem.read().to_csv(path, index=False)
        workers = {}
        for tool in ("natvi gva", *problem.peers):
            for threads in thread_counts() if tool != "lme4" else (1,):
                try:
                    worker = Worker(NATVI, threads) if tool == "natvi gva" else start_peer(tool, threads)
                    workers[tool, threads] = stack.enter_context(worker)
                    worker.ask("load", path)
                    calls[tool, threads] = []
                except WorkerError as error:
                    report.note(f"{tool} left out on {name}: {error}")
        for turn in range(runs + 1):
            for key in list(calls):
                try:
                    call = workers[key].ask("fit", problem.family, problem.formula, *_how(key[0]))
                except WorkerError as error:
                    report.note(f"{key[0]} stopped on {name}: {error}")
                    del calls[key]
                    continue
                calls[key] += [call] if turn else []  # the first call compiles, or starts up
        ours = calls["natvi gva", 1][-1]
        for (tool, threads), own in calls.items():
            metrics: dict[str, Any] = {"seconds": min(call["seconds"] for call in own), "runs": len(own)}
            if tool == "natvi gva":
                metrics |= {key: own[-1][key] for key in ("iterations", "elbo", "outcome", "memory_gib")}
            else:
                metrics["fixed_effects_max_difference_in_sds"] = largest_difference(ours, own[-1])
                metrics["remarks"] = joined(own[-1]["remarks"]) or None
            report.add(name, tool, metrics, threads=threads, versions=workers[tool, threads].versions)
    _ratios(report, name, problem, {key: min(call["seconds"] for call in own) for key, own in calls.items()})


def _how(tool: str) -> tuple[str, ...]:
    return ("gva", "default") if tool == "natvi gva" else ()


def _ratios(report: Report, name: str, problem: Problem, seconds: dict[tuple[str, int], float]) -> None:
    """Add our time over theirs: one thread each, and each at its best."""
    for peer in problem.peers:
        sides = [{threads: s for (tool, threads), s in seconds.items() if tool == own} for own in ("natvi gva", peer)]
        if all(1 in side for side in sides):
            ratio = {"ratio_of_seconds": sides[0][1] / sides[1][1]}
            report.add(name, f"natvi gva / {peer}", ratio, threads=1, versions=_versions())
            ratio = {"ratio_of_seconds": min(sides[0].values()) / min(sides[1].values())}
            report.add(name, f"natvi gva / {peer}", ratio, threads="best", versions=_versions())


def _growth(report: Report, rows: int) -> None:
    """Measure one size in a fresh process on all threads."""
    with Worker(NATVI, thread_counts()[-1]) as worker:
        before = worker.ask("growing", rows, report.seed)
        first = worker.ask("fit", "bernoulli", GROWTH, "gva", "default")
        call = worker.ask("fit", "bernoulli", GROWTH, "gva", "default")
        metrics = {
            "seconds_first_call": first["seconds"],
            "seconds": call["seconds"],
            "microseconds_per_row": 1e6 * call["seconds"] / rows,
            "formula_seconds": call["formula_seconds"],
            "iterations": call["iterations"],
            "outcome": call["outcome"],
            "peak_memory_gib": first["memory_gib"],
            "memory_before_gib": before["memory_gib"],
        }
        report.add(f"growth, {rows:,} rows", "natvi gva", metrics, threads=worker.threads, versions=worker.versions)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("natvi", "jax", "numpyro")}
