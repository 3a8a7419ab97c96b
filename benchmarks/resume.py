"""Kill a fit, let it go on in a fresh process, and compare the bits with a fit that nobody disturbed.

Fits are killed (SIGKILL) at instants drawn at random over the duration of a whole fit. At every other kill the
executioner then waits for the next write of the checkpoint to begin and strikes at random within it. A killed fit
goes on in a fresh process, which may be killed in its turn, until it finishes; then the next fit begins.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT, Report
from benchmarks.simulate import FORMULA
from benchmarks.workers import clean_environment, thread_counts

NAMES: tuple[str, ...] = ()
GROUPS, QUICK_GROUPS = 300_000, 60_000
KILLS, QUICK_KILLS = 20, 5
POLL_SECONDS = 1e-3


@dataclass
class Tally:
    """What happened so far."""

    kills: int = 0
    kills_in_write: int = 0
    resumes: int = 0
    finished: int = 0
    identical: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """How to start a fit."""

    groups: int
    seed: int
    environment: dict[str, str]

    def start(self, path: Path | None) -> subprocess.Popen[str]:
        """Start a process and return when its fit begins."""
        words = [str(self.groups), str(self.seed), "-" if path is None else str(path)]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.resume_worker", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self.environment,
        )
        assert process.stdout is not None
        if process.stdout.readline().strip() != "started":
            raise RuntimeError(f"The fit did not start: {process.communicate()[1][-500:]}")
        return process


def run(report: Report, only: Sequence[str] = ()) -> None:
    """Kill and resume; every finished fit must have the bits of the undisturbed one."""
    groups, kills = (QUICK_GROUPS, QUICK_KILLS) if report.quick else (GROUPS, KILLS)
    report.settings |= {
        "formula": f"{FORMULA}, bernoulli",
        "groups": groups,
        "writes": "after every iteration",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = {
            "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        trial = Trial(groups, report.seed, clean_environment(thread_counts()[-1]) | cache)
        reference, kept = _undisturbed(report, trial, folder)
        tally = _torment(report, trial, folder, kept, reference["digests"], kills)
    _tell(report, groups, tally, reference["versions"])


def _undisturbed(report: Report, trial: Trial, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A fit compiled afresh without checkpoints, then one from the compilation cache with them."""
    report.say("undisturbed fits")
    reference = _finish(trial.start(None))
    path = folder / "undisturbed"
    kept = _finish(trial.start(path))
    metrics = {
        "seconds": kept["seconds"],
        "iterations": kept["iterations"],
        "outcome": kept["outcome"],
        "writes": kept["writes"],
        "seconds_in_writes": kept["write_seconds"],
        "checkpoint_megabytes": path.stat().st_size / 1e6,
        "compile_seconds": reference["compile_seconds"],
        "compile_seconds_from_cache": kept["compile_seconds"],
        "identical_from_cache_and_with_checkpoints": kept["digests"] == reference["digests"],
    }
    path.unlink()
    threads = thread_counts()[-1]
    report.add(_title(trial.groups), "natvi, undisturbed", metrics, threads=threads, versions=kept["versions"])
    return reference, kept


def _torment(
    report: Report, trial: Trial, folder: Path, kept: dict[str, Any], expected: dict[str, str], kills: int
) -> Tally:
    tally, rng = Tally(), random.Random(report.seed)
    file_seconds = 0.5 * kept["write_seconds"] / max(kept["writes"], 1)  # the rest is the checksum
    whole = kept["seconds"]  # of an undisturbed fit
    number, disturbed = 0, False
    path = folder / "fit-0"
    while True:
        resumed = path.exists()
        process = trial.start(path)
        tally.resumes += resumed
        if tally.kills < kills and _wait(process, rng.uniform(0.0, whole)):
            aimed = tally.kills % 2 == 1
            if _strike(process, path, rng.uniform(0.0, file_seconds) if aimed else None):
                tally.kills += 1
                caught = bool(_temporary(path))
                tally.kills_in_write += caught
                report.say(f"kill {tally.kills}{' during a write' if caught else ''}")
                _remove(_temporary(path))
                disturbed = True
                continue
        seconds = _judge(report, process, expected, tally, disturbed)
        if not disturbed and seconds is not None:
            whole = min(whole, seconds)
        _remove([path, *_temporary(path)])
        number, disturbed = number + 1, False
        path = folder / f"fit-{number}"
        if tally.kills >= kills:
            return tally


def _wait(process: subprocess.Popen[str], seconds: float) -> bool:
    """Let the process run for a while; whether it still does."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def _strike(process: subprocess.Popen[str], path: Path, delay: float | None) -> bool:
    """Kill at once, or (with a delay) that long after the next write has begun; whether it was in time."""
    while delay is not None and process.poll() is None:
        if _temporary(path):
            time.sleep(delay)
            break
        time.sleep(POLL_SECONDS)
    if process.poll() is not None:
        return False
    process.kill()
    process.communicate()
    return process.returncode < 0


def _temporary(path: Path) -> list[Path]:
    return list(path.parent.glob(f".{path.name}.*.tmp"))


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _judge(
    report: Report, process: subprocess.Popen[str], expected: dict[str, str], tally: Tally, disturbed: bool
) -> float | None:
    """Compare a fit that was let finish, and return how long it took.

    One that was never killed proves nothing and is not counted.
    """
    try:
        result = _finish(process)
    except RuntimeError as error:
        tally.failures.append(str(error))
        report.note(f"a resumed fit failed after {tally.kills} kills: {error}")
        return None
    same = result["digests"] == expected
    if not same:
        report.note(f"a fit came out different after {tally.kills} kills: {result['digests']}")
    tally.finished += disturbed
    tally.identical += disturbed and same
    report.say(f"fit finished, killed before: {disturbed}, identical: {same}")
    return result["seconds"]


def _finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(errors.strip()[-500:])
    return json.loads(out.strip().splitlines()[-1])


def _tell(report: Report, groups: int, tally: Tally, versions: dict[str, str]) -> None:
    metrics = {
        "kills": tally.kills,
        "kills_during_a_write": tally.kills_in_write,
        "resumes": tally.resumes,
        "killed_fits_finished": tally.finished,
        "killed_fits_identical": tally.identical,
        "failures": len(tally.failures),
        "all_identical": tally.identical == tally.finished and not tally.failures,
    }
    report.add(_title(groups), "natvi, killed", metrics, threads=thread_counts()[-1], versions=versions)


def _title(groups: int) -> str:
    return f"random intercepts, {groups:,} groups"
