"""The fuzz campaign in a process of its own, which may hang or die without taking the campaign along."""

import platform
import resource
import time
from importlib import metadata
from typing import Any

from benchmarks.answering import answer_commands
from benchmarks.fuzz.cases import draw_case
from benchmarks.fuzz.judge import judge

PACKAGES = ("natvi", "jax", "jaxlib", "numpy", "pandas", "formulae")


def run_case(seed: str, number: str) -> dict[str, Any]:
    """Judge one case."""
    case = draw_case(int(seed), int(number))
    began = time.perf_counter()
    verdict = judge(case)
    return verdict._asdict() | {
        "number": case.number,
        "case": case.words,
        "family": case.family,
        "link": case.link,
        "mixed": case.mixed,
        "odd": bool(case.oddities),
        "seconds": round(time.perf_counter() - began, 2),
        "memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    """Answer commands until there are no more."""
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES}
    answer_commands({"case": run_case}, versions)


if __name__ == "__main__":
    main()
