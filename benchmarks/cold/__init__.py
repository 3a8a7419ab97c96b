"""What a user waits for: fresh processes, with an empty and a filled folder of compiled programs.

`python -m benchmarks cold` starts a process for every figure: importing, the first fit of a data set from the start of
the process to the printed summary, further data sets of other sizes in one process, the command line, ten-fold
cross-validation; beside them R with lme4 and glmmTMB, and statsmodels. Each is the shortest of several runs, which
alternate; both cores may be used by everyone.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cold.programs import COMMANDS, PEERS, STAGES
from benchmarks.report import ROOT, Report

NAMES = ("import", "first", "sessions", "terminal", "peers")
RUNS, QUICK_RUNS = 3, 1
JAX = "import jax"


class Shop:
    """Where processes are started: a folder with the data as files, and one for compiled programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is byte-compiled
        self.environment = kept | {"NATVI_CACHE": str(self.programs), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}

    def run(self, command: Sequence[str], *, cold: bool = False) -> tuple[float, str]:
        """Run a program to its end; return the seconds from its start, and what it printed."""
        if cold:
            shutil.rmtree(self.programs, ignore_errors=True)
        began = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True)
        seconds = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)[:80]} ended with code {done.returncode}: {done.stderr[-500:]}")
        return seconds, done.stdout


def run(report: Report, only: Sequence[str] = ()) -> None:
    """Measure everything; `--only` takes some of the parts."""
    runs = QUICK_RUNS if report.quick else RUNS
    report.settings |= {"taken": "the shortest"}
    wanted = {name.lower() for name in only} or set(NAMES)
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder))
        session = [sys.executable, "-m", "benchmarks.cold.session"]
        versions = json.loads(shop.run([*session, "versions"])[1])
        shop.run([*session, "files", folder])
        figures: dict[tuple[str, str], float] = {}
        stages: dict[str, dict[str, Any]] = {}
        problems = [problem for problem in COMMANDS if problem.part in wanted]
        for done in range(1, runs + 1):
            for problem in problems:
                command = problem.command(sys.executable, folder)
                if problem.warmed:
                    shop.run(command)
                seconds, _ = shop.run(command, cold=problem.cold)
                _keep_least(figures, (problem.name, "natvi"), seconds)
            if "sessions" in wanted:
                _measure_sessions(shop, [*session, "several"], stages)
            if "peers" in wanted:
                _measure_peers(report, shop, figures)
            report.rows.clear()  # whatever ends this, what was measured is told
            report.settings |= {"runs": done}
            _tell(report, figures, stages, versions)


def _tell(
    report: Report,
    figures: dict[tuple[str, str], float],
    stages: dict[str, dict[str, Any]],
    versions: dict[str, str],
) -> None:
    for (name, tool), seconds in figures.items():
        metrics = {"seconds": seconds}
        if (JAX, "natvi") in figures:
            metrics["of import jax"] = seconds / figures[JAX, "natvi"]
        report.add(name, tool, metrics, threads="all", versions=versions)
    for stage, found in stages.items():
        report.add(stage, "natvi", found, threads="all", versions=versions)


def _measure_peers(report: Report, shop: Shop, figures: dict[tuple[str, str], float]) -> None:
    for peer in PEERS:
        program = shutil.which("Rscript") if peer.in_r else sys.executable
        if program is None:
            continue
        try:
            seconds, _ = shop.run([program, *peer.words(str(shop.folder))])
        except RuntimeError as error:
            if (note := f"{peer.tool} on {peer.name}: {str(error).splitlines()[-1]}") not in report.notes:
                report.note(note)
            continue
        _keep_least(figures, (peer.name, peer.tool), seconds)


def _measure_sessions(shop: Shop, command: list[str], best: dict[str, dict[str, Any]]) -> None:
    """One process that fits one data set after the other, with an empty and with a filled folder of programs."""
    for words, cold in (("no programs kept", True), ("programs kept", False)):
        for stage, found in json.loads(shop.run(command, cold=cold)[1].splitlines()[-1]).items():
            name = f"{stage} ({words})"
            if name not in best or found["seconds"] < best[name]["seconds"]:
                best[name] = found


def _keep_least(figures: dict[tuple[str, str], float], key: tuple[str, str], seconds: float) -> None:
    figures[key] = min(seconds, figures.get(key, float("inf")))
