"""Many processes over loopback: weak scaling, bytes, very many rows and groups, and processes that are killed.

Parts, for `--only`: scaling (needs an idle machine with two cores), bytes, rows, groups, kill, study; `together` puts
what earlier runs of the parts have written into one file. Rows and groups go on where an earlier run was cut short.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, ROOT, Report, cores
from benchmarks.workers import clean_environment

PARTS = ("scaling", "bytes", "rows", "groups", "kill", "study")
NAMES = (*PARTS, "together")
ROWS, GROUPS = 100_000_000, 10_000_000
SCALING = {"glm": 500_000, "glmm": 100_000}  # rows, or groups of five rows, of every process
KILLS, KILL_GROUPS, KILL_STEPS = 10, 4_000, 60
NOTICED = 60.0  # seconds in which the others have to stop
GROUP_SECONDS = 660.0  # of one run over very many groups; the next one goes on
HOSTS = 100
TEN_GIGABIT, MESSAGE = 10e9 / 8, 25e-6  # bytes a second, seconds: assumed for the study, and said so
REDUCTIONS = {"glm": 2, "glmm": 10}  # that wait for each other in a step: sums, numbers of process 0, the next chunk


def start(
    processes: int, task: str, settings: dict[str, Any], pinned: bool = True, loud: bool = False, cache: str = ""
) -> list[subprocess.Popen[str]]:
    """Start the processes of a task, one core each; what a loud one says on the way is seen at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    common = clean_environment(1) | {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(processes)}
    if cache:
        common |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    known = cores()
    started = []
    for k in range(processes):
        words = [sys.executable, "-m", "benchmarks.hosts_worker", task, json.dumps(settings)]
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=None if loud else subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=common | {"JAX_PROCESS_ID": str(k)},
        )
        if pinned:
            os.sched_setaffinity(process.pid, {known[k % len(known)]})
        started.append(process)
    return started


def finish(started: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Return what every process says."""
    said = [process.communicate() for process in started]
    for process, (_, errors) in zip(started, said, strict=True):
        if process.returncode != 0:
            raise RuntimeError((errors or "see above").strip()[-2000:])
    return [json.loads(out.strip().splitlines()[-1]) for out, _ in said]


def run(report: Report, only: Sequence[str] = ()) -> None:
    """Run the parts that were asked for."""
    for name in only or PARTS:
        globals()[f"_{name.lower()}"](report)


def _scaling(report: Report) -> None:
    """Rows of a process held, one core each: two processes should take as long as one."""
    settings = {"few": 1, "many": 8, "runs": 3 if report.quick else 5, "seed": report.seed}
    for kind, size in SCALING.items():
        whole, alone = size // 10 if report.quick else size, 0.0
        for processes in (1, 2):
            said = finish(start(processes, "steps", settings | {"kind": kind, "size": whole}))
            seconds = max(one["seconds_a_step"] for one in said)
            alone = seconds if processes == 1 else alone
            metrics = {
                "ms_a_step": 1000 * seconds,
                "efficiency": alone / seconds,
                "loopback_kilobytes_a_step": said[0]["loopback_bytes_a_step"] / 1000,
                "steps_timed": said[0]["steps"],
                "memory_gib": max(one["memory_gib"] for one in said),
            }
            title = f"weak scaling, {kind}, {whole:,} {'rows' if kind == 'glm' else 'groups'} a process"
            tool = f"natvi, {processes} processes"
            report.add(title, tool, metrics, threads=1, versions=said[0]["versions"], settings=settings)


def _bytes(report: Report) -> None:
    """What goes over the loopback in a step, by processes and by rows: it should depend on neither rows nor groups."""
    settings = {"few": 1, "many": 5, "runs": 2, "seed": report.seed}
    for kind, size in {"glm": 4_000, "glmm": 800}.items():
        for processes, times in ((2, 1), (2, 10), (4, 1)):
            whole = settings | {"kind": kind, "size": times * size}
            said = finish(start(processes, "steps", whole, pinned=False))
            metrics = {"loopback_kilobytes_a_step": said[0]["loopback_bytes_a_step"] / 1000}
            title = f"bytes, {kind}, {times * size:,} {'rows' if kind == 'glm' else 'groups'} a process"
            report.add(title, f"natvi, {processes} processes", metrics, versions=said[0]["versions"], settings=whole)


def _rows(report: Report) -> None:
    """10^8 binary rows of 20 columns made on the fly, by exact steps."""
    size = ROWS // 1000 if report.quick else ROWS
    said = _long(report, "many_rows", {"rows": size, "seed": report.seed})
    versions = said.pop("versions")
    report.add(f"{size:,} binary rows x 20 columns", "natvi, streamed", said, threads=1, versions=versions)


def _groups(report: Report) -> None:
    """10^7 groups of five binary rows, batch by batch."""
    size = GROUPS // 1000 if report.quick else GROUPS
    settings = {"groups": size, "batch": min(50_000, size // 4), "seed": report.seed, "seconds": GROUP_SECONDS}
    said = _long(report, "many_groups", settings)
    versions = said.pop("versions")
    report.add(f"{size:,} groups x 5 binary rows", "natvi, streamed", said, threads=1, versions=versions)


def _long(report: Report, task: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Run a task that goes on, when it is started again, where it was cut short."""
    beside = Path(tempfile.gettempdir()) if report.path is None else report.path.parent
    path = beside / f".{task}-{'quick' if report.quick else 'whole'}"
    (said,) = finish(start(1, task, settings | {"path": str(path)}, False, loud=True))
    if said["outcome"] != "interrupted":
        for left in beside.glob(f"{path.name}*"):
            left.unlink()
    return said


def _kill(report: Report) -> None:
    """Kill -9 one of two processes at random instants; the other says so and ends, and both go on to the same bits."""
    rng = random.Random(report.seed)
    kills = 3 if report.quick else KILLS
    settings = {"size": KILL_GROUPS, "seed": report.seed, "steps": KILL_STEPS}
    noticed, words, same, longest = 0, 0, 0, 0.0
    with tempfile.TemporaryDirectory() as folder:

        def fit(path: str | None) -> list[subprocess.Popen[str]]:
            return _begun(start(2, "kept", settings | {"path": path}, pinned=False, cache=f"{folder}/cache"))

        whole = finish(fit(None))
        whole = finish(fit(f"{folder}/undisturbed"))
        k = 0
        while k < kills:
            path = Path(folder) / f"fit-{k}"
            path.unlink(missing_ok=True)
            pair = fit(str(path))
            time.sleep(rng.uniform(0.0, whole[0]["seconds"]))
            victim = rng.randrange(2)
            pair[victim].send_signal(signal.SIGKILL)
            began = time.monotonic()
            try:
                _, errors = pair[1 - victim].communicate(timeout=NOTICED)
            except subprocess.TimeoutExpired:
                pair[1 - victim].kill()
                k += 1
                report.note(f"kill {k}: the other process did not end within {NOTICED:.0f} s")
                continue
            finally:
                pair[victim].communicate()
            took = time.monotonic() - began
            if pair[1 - victim].returncode == 0:
                report.note(f"kill {k + 1} came after the end of the fit: drawn again")
                continue
            k += 1
            longest, noticed = max(longest, took), noticed + 1
            clear = "another process of this fit has ended" in errors or "another task died" in errors
            words += clear
            again = finish(fit(str(path)))
            equal = [one["digest"] for one in again] == [one["digest"] for one in whole]
            same += equal
            seen = {"victim": victim, "seconds_to_end": took, "message": clear, "same_bits_after_resume": equal}
            report.add(f"kill {k}", "natvi, 2 processes", seen, versions=whole[0]["versions"], settings=settings)
    metrics = {
        "kills": kills,
        "other_ended_with_an_error": noticed,
        "with_the_message": words,
        "longest_seconds_to_end": longest,
        "same_bits_after_resume": same,
    }
    title = f"kill -9 of one of two processes, {KILL_GROUPS:,} groups each"
    report.add(title, "natvi, 2 processes", metrics, versions=whole[0]["versions"], settings=settings)


def _begun(started: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Wait until the fits begin."""
    for process in started:
        assert process.stdout is not None
        while (line := process.stdout.readline()).strip() != "started":  # gloo has something to say before
            if not line:
                raise RuntimeError(process.communicate()[1][-2000:])
    return started


def _study(report: Report) -> None:
    """On paper: 10^8 rows on 100 hosts by the terms measured here, for a network that is assumed."""
    measured = RESULTS / "hosts-scaling.json"
    if not measured.exists():
        report.note("no study: run `python -m benchmarks hosts --only scaling` first")
        return
    found = json.loads(measured.read_text("utf-8"))
    rows = {(row["problem"], row["tool"], row["metric"]): row["value"] for row in found["rows"]}
    for problem, kind in zip(dict.fromkeys(row["problem"] for row in found["rows"]), SCALING, strict=True):
        times = ROWS / HOSTS / (SCALING[kind] * (1 if kind == "glm" else 5))
        local = times * rows[problem, "natvi, 1 processes", "ms_a_step"] / 1000
        # in a ring of two each sends as much as the array is long, in a ring of H 2 (H - 1) / H times that
        payload = 1000 * rows[problem, "natvi, 2 processes", "loopback_kilobytes_a_step"] / 2
        waits = REDUCTIONS[kind] * 2 * (HOSTS - 1) * MESSAGE
        exchange = waits + 2 * (HOSTS - 1) / HOSTS * payload / TEN_GIGABIT
        metrics = {
            "ms_a_step_of_own_rows": 1000 * local,
            "kilobytes_exchanged_a_step": payload / 1000,
            "reductions_a_step": REDUCTIONS[kind],
            "ms_exchange_a_step": 1000 * exchange,
            "efficiency": local / (local + exchange),
        }
        title = f"on paper: {ROWS:,} rows on {HOSTS} hosts, {kind}"
        report.add(title, "natvi", metrics, versions=found["versions"])
    report.note(
        f"assumed: {8 * TEN_GIGABIT / 1e9:.0f} Gbit/s, {1e6 * MESSAGE:.0f} microseconds a message, a ring whose every "
        f"reduction takes {2 * (HOSTS - 1)} messages one after the other; measured: a step on a process's own rows, "
        "taken as proportional to their number, and the bytes of a step"
    )


def _together(report: Report) -> None:
    """Join the files of the parts; each keeps its date and commit."""
    for name in PARTS:
        path = RESULTS / f"hosts-{name}.json"
        if not path.exists():
            report.note(f"{name}: not run")
            continue
        found = json.loads(path.read_text("utf-8"))
        report.rows += found["rows"]
        report.notes += [f"{name}: run {found['date']}, commit {found['commit']}", *found["notes"]]
    report.save()
