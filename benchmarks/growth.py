"""How time and memory of a whole call grow with the number of groups: simulated random intercepts, five rows each."""

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.report import Report
from benchmarks.simulate import FORMULA, ROWS_PER_GROUP
from benchmarks.workers import Worker, WorkerError, thread_counts

FAMILIES = ("bernoulli", "poisson")
NAMES = tuple(f"growth-{family}" for family in FAMILIES)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
BASE = 10_000  # the size whose time per group is called 1
ENOUGH_SECONDS = 10.0  # warm calls go on until they have taken so long,
MOST_CALLS = 10  # or there were so many


def run(report: Report, names: Sequence[str] = NAMES) -> None:
    """Measure all sizes, each in a fresh process on all threads."""
    sizes = SIZES[:-1] if report.quick else SIZES
    if names:
        report.settings["growth"] = f"{FORMULA}, {ROWS_PER_GROUP} rows per group; one fresh process per size"
        if report.quick:
            report.note(f"growth without {SIZES[-1]:,} groups (quick)")
    for name in names:
        per_group = {}
        for size in sizes:
            try:
                per_group[size] = _measure(report, name, size)
            except WorkerError as error:
                report.note(f"{name} with {size:,} groups stopped: {error}")
        base = per_group.get(BASE)
        for size, (microseconds, rest) in per_group.items():
            if base is not None:
                metrics = {f"time_per_group_relative_to_{BASE}": microseconds / base[0]}
                report.add(_title(name, size), "natvi", metrics, **rest)


def _measure(report: Report, name: str, size: int) -> tuple[float, dict[str, Any]]:
    family = name.removeprefix("growth-")
    threads = thread_counts()[-1]
    report.say(f"{_title(name, size)}: starting")
    with Worker([sys.executable, "-m", "benchmarks.natvi_worker"], threads) as worker:
        before = worker.ask("simulate", family, size, report.seed)
        first = worker.ask("fit", family, FORMULA)
        calls = [worker.ask("fit", family, FORMULA)]
        while len(calls) < MOST_CALLS and sum(call["seconds"] for call in calls) < ENOUGH_SECONDS:
            calls.append(worker.ask("fit", family, FORMULA))
        best = min(calls, key=lambda call: call["seconds"])
        metrics = {
            "seconds": best["seconds"],
            "runs": len(calls),
            "microseconds_per_group": 1e6 * best["seconds"] / size,
            "iterations": best["iterations"],
            "microseconds_per_group_and_iteration": 1e6 * best["seconds"] / (size * best["iterations"]),
            "outcome": best["outcome"],
            "formula_seconds": best["formula_seconds"],
            "climb_seconds": best["climb_seconds"],
            "first_call_seconds": first["seconds"],
            "first_call_compile_seconds": first["compile_seconds"],
            "peak_memory_gib": max(call["memory_gib"] for call in calls),
            "peak_memory_first_call_gib": first["memory_gib"],
            "memory_before_gib": before["memory_gib"],
        }
        rest = {
            "threads": threads,
            "versions": worker.versions,
            "settings": {"formula": FORMULA, "family": family, "groups": size, "rows": before["rows"]},
        }
    report.add(_title(name, size), "natvi", metrics, **rest)
    return metrics["microseconds_per_group"], rest


def _title(name: str, size: int) -> str:
    return f"{name}, {size:,} groups"
