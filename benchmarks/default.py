"""The default, warm, beside glmmTMB: whole calls of `method="auto"` from a formula and a frame to the verdict.

Both take turns in processes that stay warm, at one thread and at all; each at its better number of threads is the ratio
that counts. `glmm` has more tools and takes an hour; this takes some minutes.
"""

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.glmm import NATVI, PROBLEMS, SETTINGS, Problem
from benchmarks.peers import start_peer
from benchmarks.report import Report
from benchmarks.workers import Worker, WorkerError, thread_counts

RUNS = {"Toenail": 10, "HERS": 5, "Diabetes": 2}
NAMES = tuple(RUNS)
OURS, PEER = "natvi auto", "glmmTMB"


def run(report: Report, only: Sequence[str] = ()) -> None:
    """Measure the data sets on which the Gaussian does not pass its check, or those named."""
    wanted = {name.lower() for name in only}
    report.settings |= {name: SETTINGS[name] for name in ("statistic", "natvi", "glmmTMB", "formulas")}
    for problem in PROBLEMS:
        if problem.name in RUNS and (not wanted or problem.name.lower() in wanted):
            if not (report.quick and problem.name == "Diabetes"):
                _measure(report, problem, 1 if report.quick else RUNS[problem.name])


def _measure(report: Report, problem: Problem, runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "data.csv"
        problem.load().to_csv(path, index=False)
        workers: dict[tuple[str, int], Worker] = {}
        for threads in thread_counts():
            workers[OURS, threads] = stack.enter_context(Worker(NATVI, threads))
            try:
                workers[PEER, threads] = stack.enter_context(start_peer(PEER, threads))
            except WorkerError as error:
                report.note(f"{PEER} left out: {error}")
        words = {OURS: (problem.family, problem.formula, "auto"), PEER: (problem.family, problem.formula)}
        for (tool, _), worker in workers.items():
            worker.ask("load", path)
            worker.ask("fit", *words[tool])
        best: dict[tuple[str, int], float] = {}
        for _ in range(runs):
            for key, worker in workers.items():
                found = worker.ask("fit", *words[key[0]])
                best[key] = min(found["seconds"], best.get(key, float("inf")))
        for (tool, threads), seconds in best.items():
            versions = workers[tool, threads].versions
            report.add(problem.name, tool, {"seconds": seconds, "runs": runs}, threads=threads, versions=versions)
        least = {tool: min(seconds for (name, _), seconds in best.items() if name == tool) for tool, _ in best}
        if PEER in least:
            ratio = {"ratio_of_seconds": least[OURS] / least[PEER]}
            report.add(problem.name, f"{OURS} / {PEER}", ratio, threads="best", versions=workers[OURS, 1].versions)
