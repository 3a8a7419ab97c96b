"""Every run of the suite in a worker process, with a limit of time; what was found is kept.

One line for each member and data seed (moments of the true draws), with a fit seed (natvi), or with a tool (peers), in
the repository, `benchmarks/runs/posteriors-*.jsonl`; for a module of one's own in ~/.cache/natvi/posteriors. The
variable NATVI_POSTERIORS names another folder. Lines of another suite, or of other peers, are left aside. Fits are kept
with a digest of natvi's sources, which the report counts: a campaign of hours goes on where it was, over several
occasions; delete the file of the fits to begin anew.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.posteriors.measure import compare
from benchmarks.posteriors.suite import OWN
from benchmarks.report import source_digest
from benchmarks.workers import Worker, WorkerError, WorkerTimeoutError

VARIABLE, DEFAULT = "NATVI_POSTERIORS", "~/.cache/natvi/posteriors"
RUNS = Path(__file__).parents[1] / "runs"
MISSING = "not run yet"
LIMITS = {"truth": 7200.0, "fit": 600.0, "peer": 900.0, "time": 600.0}  # seconds
SUITE = ("hierarchies", "regressions", "series", "shapes", "measure", "nuts", "posterior")
Found = dict[str, Any]


class Campaign:
    """A worker that is started when it is needed, and again after it died."""

    def __init__(self, module: str, kept: bool = False, minutes: float | None = None) -> None:
        """Read what earlier runs have kept; `kept` runs nothing more, `minutes` nothing after so many."""
        self.module, self.versions = module, {"natvi": "unknown"}
        self.missing: list[str] = []
        self._kept = kept
        self._end = None if minutes is None else time.monotonic() + 60.0 * minutes
        self._worker: Worker | None = None
        suite, sources = _digest(module, SUITE), source_digest()[:12]
        peers = _digest(module, (*SUITE, "peers"))
        self._labels = {
            "truth": {"suite": suite},
            "fit": {"suite": suite, "sources": sources},
            "peer": {"suite": peers},
            "time": {"suite": suite, "sources": sources},
        }
        self._folder = _folder(module)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known = {kind: self._read(kind) for kind in LIMITS}

    def truth(self, slug: str, seed: int) -> Found:
        """See to it that the moments of the true draws are there; return what these say of the member."""
        return self._recall("truth", slug, seed)

    def fit(self, slug: str, data_seed: int, fit_seed: int) -> Found:
        """Return what natvi's fit found, now or earlier."""
        return self._recall("fit", slug, data_seed, fit_seed)

    def peer(self, slug: str, tool: str, data_seed: int) -> Found:
        """Return what another tool found, now or earlier."""
        return self._recall("peer", slug, tool, data_seed)

    def times(self, slug: str, data_seed: int, fit_seed: int, anew: bool = False) -> Found:
        """Return the CPU seconds of a fit, compiled anew and once more, measured on a machine that did nothing else."""
        if anew:
            self._known["time"].pop((slug, data_seed, fit_seed), None)
        return self._recall("time", slug, data_seed, fit_seed, known_only=not anew)

    def only_kept(self) -> None:
        """From now on, run nothing more."""
        self._kept = True

    def sources(self) -> dict[str, int]:
        """Return with which sources of natvi fits were made, and how many."""
        counts: dict[str, int] = {}
        for line in self._known["fit"].values():
            counts[line["sources"]] = counts.get(line["sources"], 0) + 1
        return counts

    def _recall(self, kind: str, *words: Any, known_only: bool = False) -> Found:
        line = self._known[kind].get(words)
        if line is None:
            if known_only or self._kept or (self._end is not None and time.monotonic() > self._end):
                self.missing.append(f"{kind} {' '.join(map(str, words))}")
                return {"error": MISSING}
            found = self._ask(kind, *words)
            if found.get("error") == MISSING or "took more than" in found.get("error", ""):
                return found  # on a busy machine: another run may have the time
            line = {"key": list(words), "found": found, "versions": self.versions} | self._labels[kind]
            self._known[kind][words] = line
            with self._path(kind).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        self.versions = line["versions"]
        return line["found"]

    def _ask(self, kind: str, *words: Any) -> Found:
        truth = self.truth(words[0], words[2 if kind == "peer" else 1]) if kind in ("fit", "peer") else {}
        if "error" in truth:
            return {"error": MISSING}
        try:
            if self._worker is None:
                self._worker = Worker([sys.executable, "-m", "benchmarks.posteriors.worker"], 1)
            self.versions = self._worker.versions
            found = self._worker.ask(kind, self.module, *words, limit=LIMITS[kind])
        except WorkerTimeoutError as error:
            self.close()
            return {"error": str(error)}
        except WorkerError as error:
            if "ended with code" in str(error):
                self.close()
            return {"error": str(error)[:300]}
        return _compared(found, truth) if kind in ("fit", "peer") else found

    def _path(self, kind: str) -> Path:
        return self._folder / f"posteriors-{kind}.jsonl"

    def _read(self, kind: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Return the lines of this suite; of two with one key the later."""
        path = self._path(kind)
        lines = map(json.loads, path.read_text("utf-8").splitlines()) if path.is_file() else ()
        suite = self._labels[kind]["suite"]
        return {tuple(line["key"]): line for line in lines if line["suite"] == suite}

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _compared(found: Found, truth: Found) -> Found:
    """Put what an answer is off by in the place of its means and sds."""
    mean, sd = (np.array([np.nan if x is None else x for x in found.pop(name)]) for name in ("mean", "sd"))
    shift, change = compare(mean, sd, np.array(truth["mean"]), np.array(truth["sd"]))
    return {name: round(x, 6) if np.isfinite(x) else None for name, x in (("shift", shift), ("change", change))} | found


def _folder(module: str) -> Path:
    own = str(RUNS) if module == OWN else DEFAULT
    return Path(os.environ.get(VARIABLE) or own).expanduser()


def _digest(module: str, names: tuple[str, ...]) -> str:
    """Return a digest of the suite: its densities, its rule and true draws, and the user's module."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in [*(folder / f"{name}.py" for name in names), *([Path(module)] if Path(module).is_file() else [])]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
