"""Every run of the suite in a worker process, with a limit of time; what was found is kept.

One line for each member, data seed and fit seed (natvi), or member, tool and data seed (peers), in the folder named by
NATVI_POSTERIORS, by default ~/.cache/natvi/posteriors. Files of natvi's outcomes are named after its sources and the
suite's, those of peers after the suite's alone: a campaign that was interrupted goes on where it was.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import source_digest
from benchmarks.workers import Worker, WorkerError, WorkerTimeoutError

VARIABLE, DEFAULT = "NATVI_POSTERIORS", "~/.cache/natvi/posteriors"
MISSING = "not run yet"
TRUTH_LIMIT, FIT_LIMIT, PEER_LIMIT = 7200.0, 600.0, 900.0  # seconds


class Campaign:
    """A worker that is started when it is needed, and again after it died."""

    def __init__(self, module: str, kept: bool = False) -> None:
        """Name the files in which outcomes are kept; `kept` runs nothing that is not in them."""
        self.module, self.kept = module, kept
        self.missing: list[str] = []
        self.versions: dict[str, str] = {"natvi": "unknown"}
        self._worker: Worker | None = None
        folder = Path(os.environ.get(VARIABLE) or DEFAULT).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        suite = _digest(module)
        whole = hashlib.sha256(f"{source_digest()}{suite}".encode()).hexdigest()[:12]
        self._files = {"truth": folder / f"truth-{suite}.jsonl", "fit": folder / f"natvi-{whole}.jsonl"}
        self._files["peer"] = folder / f"peers-{suite}.jsonl"

    def truth(self, slug: str, seed: int) -> dict[str, Any]:
        """See to it that the true draws are there; return what they say of the member."""
        return self._recall("truth", TRUTH_LIMIT, slug, seed)

    def fit(self, slug: str, data_seed: int, fit_seed: int) -> dict[str, Any]:
        """Return what natvi's fit found, now or earlier."""
        return self._recall("fit", FIT_LIMIT, slug, data_seed, fit_seed)

    def peer(self, slug: str, tool: str, data_seed: int) -> dict[str, Any]:
        """Return what another tool found, now or earlier."""
        return self._recall("peer", PEER_LIMIT, slug, tool, data_seed)

    def _recall(self, command: str, limit: float, *words: Any) -> dict[str, Any]:
        path, key = self._files[command], list(words)
        if path.is_file():
            for line in path.read_text("utf-8").splitlines():
                kept = json.loads(line)
                if kept["key"] == key:
                    self.versions = kept["versions"]
                    return kept["found"]
        if self.kept:
            self.missing.append(f"{command} {' '.join(map(str, words))}")
            return {"error": MISSING}
        found = self._ask(command, limit, *words)
        if command != "peer" and "took more than" in found.get("error", ""):
            return found  # on a busy machine: another run may have the time
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "found": found, "versions": self.versions}) + "\n")
        return found

    def _ask(self, command: str, limit: float, *words: Any) -> dict[str, Any]:
        try:
            if self._worker is None:
                self._worker = Worker([sys.executable, "-m", "benchmarks.posteriors.worker"], 1)
                self.versions = self._worker.versions
            return self._worker.ask(command, self.module, *words, limit=limit)
        except WorkerTimeoutError as error:
            self.close()
            return {"error": str(error)}
        except WorkerError as error:
            if "ended with code" in str(error):
                self.close()
            return {"error": str(error)[:300]}

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _digest(module: str) -> str:
    """Return a digest of the suite: its densities, its rule, its peers, and the user's module."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    names = ("hierarchies", "regressions", "series", "shapes", "measure", "nuts", "peers", "posterior")
    for path in [*(folder / f"{name}.py" for name in names), *([Path(module)] if Path(module).is_file() else [])]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
