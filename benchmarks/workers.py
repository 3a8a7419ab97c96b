"""Persistent subprocesses: each tool stays warm in its own process, on its own number of cores.

A command is one line of words separated by tabs. A reply is one line of JSON after an "@"; other lines are
what a tool prints by itself. The first reply comes when the worker is ready and names its versions.
"""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from benchmarks.report import ROOT, cores

MARK = "@"


class WorkerError(RuntimeError):
    """A worker could not start, died, or reported an error."""


class WorkerTimeoutError(WorkerError):
    """A call took longer than it may."""


class Worker:
    """A tool in a process of its own, pinned to as many cores as it may use."""

    def __init__(self, command: Sequence[str], threads: int, environment: Mapping[str, str] | None = None) -> None:
        self.threads = threads
        self._errors = tempfile.TemporaryFile()
        began = time.perf_counter()
        with pinned(threads):
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                cwd=ROOT,
                env=clean_environment(threads) | dict(environment or {}),
            )
        try:
            self.versions: dict[str, str] = self._reply()["versions"]
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.perf_counter() - began

    def ask(self, *words: object, limit: float | None = None) -> dict[str, Any]:
        """Send a command and wait for its reply; past the limit (seconds) the worker is killed."""
        if limit is None:
            return self._ask(*words)
        alarm = threading.Timer(limit, self._process.kill)
        alarm.start()
        try:
            return self._ask(*words)
        except WorkerError as error:
            if alarm.is_alive():
                raise
            raise WorkerTimeoutError(f"took more than {limit:,.0f} seconds") from error
        finally:
            alarm.cancel()

    def _ask(self, *words: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("\t".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerError(self._last_words()) from error
        return self._reply()

    def close(self) -> None:
        """End the process: without input it ends by itself, unless it is in the middle of a fit."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                reply = json.loads(line[len(MARK) :])
                if "error" in reply:
                    raise WorkerError(reply["error"])
                return reply
        raise WorkerError(self._last_words())

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace").strip()
        return f"ended with code {code}: {text[-500:]}"


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Processes started inside inherit the first `threads` cores."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores()[:threads])
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def clean_environment(threads: int) -> dict[str, str]:
    """The environment without the caller's own settings of JAX, and with as many threads as asked for."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    kept |= {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads), "NATVI_CACHE": "off"}
    if threads == 1:
        kept["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return kept


def thread_counts() -> tuple[int, ...]:
    """One thread, and two where there are two cores."""
    return (1, 2) if len(cores()) > 1 else (1,)
