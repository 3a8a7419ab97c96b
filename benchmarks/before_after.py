"""natvi's own seconds in two checkouts, call by call in turns: `python -m benchmarks.before_after OLD NEW`.

Each checkout answers from processes of its own that stay warm, with its own sources and its own benchmarks; the two
take turns within one run, and the fastest call of each counts. No peers. A figure above 1.10 is marked.

A run may be cut into pieces, by benchmark and by problem: with `--json` each figure is added to the file as soon as it
is measured, in place of an earlier one of the same name.
"""

import argparse
import contextlib
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import glm_problems, glmm, report, step
from benchmarks.workers import Worker, WorkerError, clean_environment, thread_counts

ALLOWED = 1.10
PACKAGES = ("jax", "jaxlib", "numpy", "pandas", "formulae")
STEP_ROUNDS, STEP_TURNS = 4, 4
RUNS = {"gva": 15, "exact": 15, "marginal": 4, "auto": 4}
LONG = 12.0  # seconds: calls of a figure end when each side has spent this much
MEASURE = (
    "import sys, json; from benchmarks.step import _measure; "
    "print('@' + json.dumps(_measure(sys.argv[1], int(sys.argv[2]))))"
)


class Figure(NamedTuple):
    """The fastest call before and after, in seconds, and the bounds they reached."""

    name: str
    seconds: tuple[float, float]
    elbos: tuple[float | None, float | None] = (None, None)

    @property
    def ratio(self) -> float:
        """After divided by before."""
        return self.seconds[1] / self.seconds[0]

    def line(self) -> str:
        """One row of the table."""
        old, new = (f"{value:.4g}" for value in self.seconds)
        rise = "" if None in self.elbos else f"{self.elbos[1] - self.elbos[0]:+.1e}"  # type: ignore[operator]
        return f"| {self.name} | {old} | {new} | {self.ratio:.2f}{' (!)' if self.ratio > ALLOWED else ''} | {rise} |"


def main(arguments: list[str] | None = None) -> int:
    """Measure all figures, or those of one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before_after", description=__doc__)
    parser.add_argument("old", type=Path, help="checkout of before")
    parser.add_argument("new", type=Path, help="checkout of after")
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES), help="benchmarks")
    parser.add_argument("--problems", nargs="+", metavar="NAME", help="problems, e.g. a4a toenail; by default all")
    parser.add_argument("--quick", action="store_true", help="two calls of the smallest problems: does it run?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    options = parser.parse_args(arguments)
    trees, began = (options.old.resolve(), options.new.resolve()), time.perf_counter()
    names = None if options.problems is None else {name.lower() for name in options.problems}
    kept = Kept(options.json, trees, options.quick)
    print("| figure | before, s | after, s | ratio | bound, after - before |\n|---|---|---|---|---|", flush=True)
    for name in options.only:
        for figure in FIGURES[name](trees, options.quick, names):
            kept.add(figure)
            print(figure.line(), flush=True)
    print(f"\n{kept.words()} This run took {time.perf_counter() - began:.0f} s.")
    return 0


class Kept:
    """All figures of two commits so far, in a file if there is one."""

    def __init__(self, path: Path | None, trees: tuple[Path, Path], quick: bool) -> None:
        """Go on from the file where it holds figures of the same commits."""
        commits = dict(zip(("before", "after"), map(_commit, trees), strict=True))
        settings = {"statistic": "minimum; before and after take turns", "calls": RUNS, "seconds of a side": LONG}
        settings |= {"processes of a step": STEP_TURNS, "rounds of a step": STEP_ROUNDS, "allowed": ALLOWED}
        self._path = path
        self._head = {"name": "before_after", "commits": commits, "quick": quick, "settings": settings}
        self._head |= {"machine": report.machine(), "versions": {name: version(name) for name in PACKAGES}}
        self._rows: dict[str, dict[str, Any]] = {}
        if path is not None and path.is_file():
            found = json.loads(path.read_text("utf-8"))
            if found["commits"] == commits and found["quick"] == quick:
                self._rows = {row["name"]: row for row in found["figures"]}

    def add(self, figure: Figure) -> None:
        """Take a figure in, and write them all."""
        self._rows[figure.name] = figure._asdict() | {"ratio": figure.ratio}
        if self._path is not None:
            self._path.write_text(json.dumps(self._head | {"figures": list(self._rows.values())}, indent=1) + "\n")

    def words(self) -> str:
        """How many there are, their mean, and those above what is allowed."""
        ratios = {name: row["ratio"] for name, row in self._rows.items()}
        mean = math.exp(sum(map(math.log, ratios.values())) / max(len(ratios), 1))
        above = ", ".join(name for name, ratio in ratios.items() if ratio > ALLOWED)
        return f"{len(ratios)} figures, geometric mean of the ratios {mean:.3f}; above {ALLOWED}: {above or 'none'}."


def step_figures(trees: tuple[Path, Path], quick: bool, names: set[str] | None = None) -> Iterator[Figure]:
    """One step of every rule, and the bare gradient, in fresh processes."""
    for problem in _asked(step.NAMES[1:2] if quick else step.NAMES, names):
        best: tuple[dict[str, float], dict[str, float]] = ({}, {})
        for _ in range(1 if quick else STEP_TURNS):
            for tree, kept in zip(trees, best, strict=True):
                for tool, metrics in _step(tree, problem, 1 if quick else STEP_ROUNDS).items():
                    kept[tool] = min(kept.get(tool, math.inf), 1e-6 * metrics["microseconds"])
        for tool in best[0]:
            yield Figure(f"step: {problem}, {tool}", (best[0][tool], best[1][tool]))


def glm_figures(trees: tuple[Path, Path], quick: bool, names: set[str] | None = None) -> Iterator[Figure]:
    """Logistic regression from arrays to the posterior, at one thread and at all."""
    for problem in _asked(glm_problems.NAMES[:1] if quick else glm_problems.NAMES, names):
        for threads in thread_counts():
            with _pair(trees, threads, "benchmarks.glm_worker", "natvi exact") as workers:
                for worker in workers:
                    worker.ask("load", problem)
                calls = _turns(workers, ("fit",), 2 if quick else RUNS["exact"])
            yield _figure(f"glm: {problem}, threads {threads}", calls)


def glmm_figures(trees: tuple[Path, Path], quick: bool, names: set[str] | None = None) -> Iterator[Figure]:
    """Mixed models from formula and frame to the fit; the Gaussian fit at one thread too."""
    problems = {problem.name: problem for problem in glmm.PROBLEMS}
    for name in _asked(list(problems)[:1] if quick else list(problems), names):
        problem = problems[name]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.csv"
            problem.load().to_csv(path, index=False)
            for threads in thread_counts():
                with _pair(trees, threads, "benchmarks.natvi_worker") as workers:
                    for worker in workers:
                        worker.ask("load", path)
                    for method in _methods(problem.name, threads, quick):
                        model = ("fit", problem.family, problem.formula, method)
                        calls = _turns(workers, model, 2 if quick else RUNS[method])
                        yield _figure(f"glmm: {problem.name}, {method}, threads {threads}", calls)


FIGURES: dict[str, Callable[[tuple[Path, Path], bool, set[str] | None], Iterator[Figure]]] = {
    "step": step_figures,
    "glm": glm_figures,
    "glmm": glmm_figures,
}


def _asked(known: Sequence[str], names: set[str] | None) -> list[str]:
    return [name for name in known if names is None or name.lower() in names]


def _methods(problem: str, threads: int, quick: bool) -> tuple[str, ...]:
    few = quick or problem == "Diabetes" or threads < thread_counts()[-1]
    return glmm.METHODS[:1] if few else glmm.METHODS


def _turns(workers: list[Worker], words: tuple[str, ...], runs: int) -> list[list[dict[str, Any]]]:
    """Warm both up, then let them answer in turns."""
    for worker in workers:
        worker.ask(*words)
    calls: list[list[dict[str, Any]]] = [[], []]
    for turn in range(runs):
        both = list(zip(workers, calls, strict=True))
        for worker, kept in both if turn % 2 else both[::-1]:
            kept.append(worker.ask(*words))
        if turn > 0 and max(sum(call["seconds"] for call in kept) for kept in calls) > LONG:
            break
    return calls


def _figure(name: str, calls: list[list[dict[str, Any]]]) -> Figure:
    old, new = (min(call["seconds"] for call in kept) for kept in calls)
    return Figure(name, (old, new), (calls[0][-1]["elbo"], calls[1][-1]["elbo"]))


@contextlib.contextmanager
def _pair(trees: tuple[Path, Path], threads: int, module: str, *words: str) -> Iterator[list[Worker]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                Worker(_command(tree, "-m", module, *words), threads, {"PYTHONPATH": str(tree / "src")})
            )
            for tree in trees
        ]


def _step(tree: Path, problem: str, rounds: int) -> dict[str, dict[str, float]]:
    """The figures of a problem from one checkout: a fresh process on all cores."""
    environment = clean_environment(thread_counts()[-1]) | {"PYTHONPATH": str(tree / "src")}
    command = _command(tree, "-c", MEASURE, problem, str(rounds))
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in answer.stdout.splitlines() if line.startswith("@")]
    if not lines:
        raise WorkerError(f"{tree}: {answer.stderr.strip()[-500:]}")
    return json.loads(lines[0][1:])[1]


def _command(tree: Path, *words: str) -> list[str]:
    return ["env", "-C", str(tree), sys.executable, *words]


def _commit(tree: Path) -> str:
    return subprocess.run(["git", "-C", tree, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
