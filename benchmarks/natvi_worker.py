"""natvi in a process of its own; see `workers` for how it is spoken to."""

import platform
import resource
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

import natvi
from benchmarks.answering import answer_commands
from benchmarks.crossed_problems import growing
from benchmarks.simulate import random_intercepts
from natvi.models.mixed import door as door

PACKAGES = ("natvi", "jax", "jaxlib", "numpy", "pandas", "formulae")


class Session:
    """A data frame in memory and the last fit."""

    def __init__(self) -> None:
        self.frame = pd.DataFrame()
        self.result: natvi.Result | None = None
        self.climb_seconds = 0.0
        climb = door.climb_groups

        def timed(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return climb(*args, **options)
            finally:
                self.climb_seconds = time.perf_counter() - began

        door.climb_groups = timed  # the optimisation inside the fit, without the layout of the rows before it

    def load(self, path: str) -> dict[str, Any]:
        """Read the data frame."""
        self.frame = pd.read_csv(path, float_precision="round_trip")
        return {"rows": len(self.frame)}

    def simulate(self, family: str, num_groups: str, seed: str) -> dict[str, Any]:
        """Make a data frame."""
        self.frame = random_intercepts(family, int(num_groups), int(seed))
        return {"rows": len(self.frame), "memory_gib": _peak_memory()}

    def growing(self, rows: str, seed: str) -> dict[str, Any]:
        """Make a data frame with two crossed factors."""
        self.frame = growing(int(rows), int(seed))
        return {"rows": len(self.frame), "memory_gib": _peak_memory()}

    def fit(self, family: str, formula: str, method: str = "gva", prior: str = "paper") -> dict[str, Any]:
        """The whole call, from the formula and the frame to the result; with "auto" that includes the verdict."""
        self.result = None  # its memory is not the next call's
        began = time.perf_counter()
        model = natvi.glmm(formula, self.frame, family=family, prior=prior)
        described = time.perf_counter()
        result = model.fit(method=method)
        seconds = time.perf_counter() - began
        self.result = result
        table = result.fixed_effects()
        return {
            "seconds": seconds,
            "formula_seconds": described - began,
            "fit_seconds": result.seconds["run"],
            "compile_seconds": result.seconds["compile"],
            "climb_seconds": self.climb_seconds,
            "elbo": result.elbo,
            "method": result.method,
            "outcome": str(result.outcome),
            "iterations": len(result.trace),
            "names": [str(name) for name in table.index],
            "estimates": table["mean"].tolist(),
            "sds": table["sd"].tolist(),
            "memory_gib": _peak_memory(),
        }

    def print(self) -> dict[str, Any]:
        """What a user does next: read the summary, with the verdict on the fit."""
        began = time.perf_counter()
        text = repr(self.result)
        return {"seconds": time.perf_counter() - began, "characters": len(text)}


def _peak_memory() -> float:
    # the kernel's ru_maxrss includes the parent's memory before exec; VmHWM does not
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return (peaks[0] if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 2**20


def main() -> None:
    """Answer commands until there are no more."""
    session = Session()
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "load": session.load,
        "simulate": session.simulate,
        "growing": session.growing,
        "fit": session.fit,
        "print": session.print,
    }
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES}
    answer_commands(commands, versions)


if __name__ == "__main__":
    main()
