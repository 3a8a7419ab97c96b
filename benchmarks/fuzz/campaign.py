"""Many cases in a worker process, one after the other, with a limit of time for each; outcomes are kept.

What was found is kept in the repository, `benchmarks/runs/fuzz-SEED.jsonl`, each case with a digest of the sources of
library and fuzz it was found with, so that a campaign of hours goes on where it was; delete the file to begin anew.
Compiled programs lie in the folder named by NATVI_FUZZ, by default ~/.cache/natvi/fuzz.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import cores, source_digest
from benchmarks.workers import Worker, WorkerError, WorkerTimeoutError

VARIABLE, DEFAULT = "NATVI_FUZZ", "~/.cache/natvi/fuzz"
RUNS = Path(__file__).parents[1] / "runs"
MOST_MEMORY = 3.5  # GiB, beyond which the worker is started again
# small data: compiling is the cost of a case, so little optimisation, and programs are kept between processes
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
}


class Campaign:
    """A worker that is started when it is needed, and again after it died."""

    limit = 600.0

    def __init__(self, seed: int, threads: int | None = None) -> None:
        self.seed, self.threads = seed, threads or len(cores())
        self.versions: dict[str, str] = {"natvi": "unknown"}
        self._worker: Worker | None = None
        self._folder = Path(os.environ.get(VARIABLE) or DEFAULT).expanduser()
        self._folder.mkdir(parents=True, exist_ok=True)
        RUNS.mkdir(exist_ok=True)
        self._kept, self._sources = RUNS / f"fuzz-{seed}.jsonl", _digest()

    def outcomes(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Yield what came of each case, found now or earlier."""
        known = self._read()
        self._started()  # names the versions
        for number in numbers:
            if number not in known:
                known[number] = self._ask(number) | {"sources": self._sources}
                with self._kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(known[number]) + "\n")
            yield known[number]

    def _ask(self, number: int) -> dict[str, Any]:
        worker = self._started()
        try:
            found = worker.ask("case", self.seed, number, limit=self.limit)
        except WorkerTimeoutError:
            self._end()
            return self._described(number, "hang", f"took more than {self.limit:.0f} s")
        except WorkerError as error:
            self._end()
            return self._described(number, "crash", f"the process ended: {error}")
        if found["memory_gib"] > MOST_MEMORY:
            self._end()
        return found

    def _described(self, number: int, outcome: str, words: str) -> dict[str, Any]:
        from benchmarks.fuzz.cases import draw_case

        case = draw_case(self.seed, number)
        about = {"case": case.words, "family": case.family, "link": case.link, "mixed": case.mixed}
        rest = {"compared": [], "trust": "", "warned": "", "seconds": self.limit, "memory_gib": 0.0}
        return {"number": number, "outcome": outcome, "words": words, "odd": bool(case.oddities)} | about | rest

    def _started(self) -> Worker:
        if self._worker is None:
            cache = {"JAX_COMPILATION_CACHE_DIR": str(self._folder / "programs")}
            command = [sys.executable, "-m", "benchmarks.fuzz.worker"]
            self._worker = Worker(command, self.threads, ENVIRONMENT | cache)
            self.versions = self._worker.versions
        return self._worker

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _read(self) -> dict[int, dict[str, Any]]:
        if not self._kept.is_file():
            return {}
        lines = self._kept.read_text("utf-8").splitlines()
        return {found["number"]: found for found in map(json.loads, lines)}

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


def _digest() -> str:
    """Return a digest of the library and of the fuzz itself."""
    digest = hashlib.sha256(source_digest().encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
