"""Mixed models by stochastic methods: our own first-order Snngm, NumPyro's automatic guides, PyMC's ADVI, and NUTS.

All start from zero and work on the same log-density in float64, in one process on one thread; compilation is not part
of the time. M is the paper's measure of the maximum mean discrepancy from NUTS (Section 8; higher is better, about 10
is the ceiling), over random effects and shared coordinates, where draws of NUTS have been kept by
`python -m experiments.mixed_reference`.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.memory import folder
from experiments.mixed_problems import PROBLEMS
from experiments.report import RESULTS

from benchmarks.report import Report
from benchmarks.workers import Worker, WorkerError
from natvi.metrics.mmd import mmd_measure

WORKER = [sys.executable, "-m", "benchmarks.vi_worker"]
NEAR = 0.1  # nats
RUNS, QUICK_RUNS = 15, 5  # of the exact ascent at least, the shortest counts
SHORT, REPEATS = 2.0, 4  # seconds of Snngm below which it is run again, so often
GRID = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # alpha_0 of Snngm; those of Table 11 are among them
SNNGM_STEPS, SNNGM_SECONDS, QUICK_SECONDS = 100_000, 40.0, 6.0  # at most, for each alpha_0
LONGER = 110  # times the exact ascent: the best alpha_0 is given so long at least
DENSE_GUIDE = "AutoMultivariateNormal"
GUIDES = ("AutoNormal", DENSE_GUIDE, "AutoLowRankMultivariateNormal")
STEPS, QUICK_STEPS, FEW_STEPS, MANY = 20_000, 2_000, 1_000, 1_000  # few steps beyond so many coordinates
MOST_COORDINATES = 5_000  # beyond that a dense covariance has no place in memory
MMD_DRAWS, MMD_EVALUATIONS = 1_000, 10
PAPER = {"Epilepsy": 8.79, "Toenail": 3.64, "HERS": 5.80}  # M of Snngm with GVA, Table 11
SETTINGS = {
    "Snngm": (
        f"first-order Algorithm 2S, one draw a step, alpha_0 the best of {GRID}, at most {SNNGM_STEPS:,} steps or "
        f"{SNNGM_SECONDS:.0f} s each, the best {LONGER} times as long as the exact ascent; time until the exact bound "
        f"of an iterate is within {NEAR} nats of the best"
    ),
    "NumPyro": (
        f"{STEPS:,} steps of Adam ({FEW_STEPS:,} beyond {MANY:,} coordinates), 0.01 falling to 0.0001, one draw each; "
        "the best of 20 looks, each of 1,000 draws"
    ),
    "PyMC": f"pm.fit({STEPS}, method='advi'), timed from its first step; the bound is the mean of the last 1,000",
}


class Case(NamedTuple):
    """A data set with its model; `path` is its CSV file."""

    name: str
    family: str
    formula: str
    path: Path


def run(report: Report, case: Case) -> None:
    """Measure the stochastic methods, and beside them the exact ascent, on one problem."""
    report.settings |= SETTINGS
    try:
        with Worker(WORKER, 1) as worker:
            loaded = worker.ask("load", case.family, case.formula, case.path)
            score = _Score(case.name, report)
            rest = {"threads": 1, "versions": worker.versions}
            _ours(report, case, worker, loaded["coordinates"], score, rest)
            _others(report, case, worker, loaded["coordinates"], score, rest)
            score.tell(rest)
    except WorkerError as error:
        report.note(f"stochastic methods stopped on {case.name}: {error}")


def best_run(runs: dict[float, dict[str, Any]]) -> float:
    """Return the step size that came near in the shortest time, or else came nearest."""
    near = {alpha: run["seconds"] for alpha, run in runs.items() if run["near"]}
    if near:
        return min(near, key=lambda alpha: near[alpha])
    return min(runs, key=lambda alpha: np.inf if runs[alpha]["gap"] is None else runs[alpha]["gap"])


def _ours(report: Report, case: Case, worker: Worker, coordinates: int, score: "_Score", rest: dict[str, Any]) -> None:
    """Time the exact ascent, tune Snngm on the grid, and let the library stop Snngm with the same step size."""
    exact = worker.ask("ascent", QUICK_RUNS if report.quick else RUNS)
    report.add(case.name, "natvi gva, optimisation alone", exact, **rest)
    limit = QUICK_SECONDS if report.quick else SNNGM_SECONDS
    runs = {alpha: worker.ask("snngm", alpha, SNNGM_STEPS, limit) for alpha in GRID}
    alpha = best_run(runs)
    found = runs[alpha]
    if found["near"] and found["seconds"] < SHORT:  # the same steps again: the shortest time counts
        repeated = (worker.ask("snngm", alpha, SNNGM_STEPS, limit) for _ in range(REPEATS))
        found = min(found, *repeated, key=lambda run: run["seconds"])
    longer = LONGER * exact["seconds_to_0.1_nat"]
    if not found["near"] and found["seconds"] < longer:
        found = worker.ask("snngm", alpha, SNNGM_STEPS, longer)
    name = "natvi Snngm, first order"
    when = "seconds_to_0.1_nat" if found["near"] else "seconds_more_than"
    metrics: dict[str, Any] = {when: found["seconds"], "alpha_0": alpha}
    metrics |= {key: found[key] for key in ("steps", "elbo", "gap")} | score.of(found["draws"])
    if case.name in PAPER and "M" in metrics:
        metrics["M_paper"] = PAPER[case.name]
    metrics |= _bound_of_table11(case.name)
    if alpha in (GRID[0], GRID[-1]):
        report.note(f"{case.name}: alpha_0 = {alpha} lies at the edge of the grid of Snngm")
    tried = {str(a): {key: run[key] for key in ("seconds", "steps", "near", "gap")} for a, run in runs.items()}
    report.add(case.name, name, metrics, **rest, settings={"grid": tried})
    ratio = found["seconds"] / exact["seconds_to_0.1_nat"]
    compared = {f"{'' if found['near'] else 'more_than_'}times_as_fast_to_0.1_nat": ratio}
    report.add(case.name, f"natvi gva, optimisation alone, beside {name}", compared, **rest)
    if not report.quick and coordinates <= MOST_COORDINATES:
        found = worker.ask("stages", alpha, SNNGM_STEPS)
        metrics = {key: found[key] for key in ("seconds", "steps", "elbo", "gap")} | score.of(found["draws"])
        report.add(case.name, "natvi Snngm, stages and averages", metrics, **rest, settings={"alpha_0": alpha})


def _bound_of_table11(name: str) -> dict[str, float]:
    """Return the bound that Snngm with GVA has in our Table 11, if it is there."""
    cells = json.loads((RESULTS / "table11.json").read_text())["cells"]
    key = {"row": "Snngm", "column": f"{name}, GVA", "metric": "elbo"}
    found = [cell["ours"] for cell in cells if key.items() <= cell.items()]
    return {"elbo_table11": found[0]} if found else {}


def _others(
    report: Report, case: Case, worker: Worker, coordinates: int, score: "_Score", rest: dict[str, Any]
) -> None:
    steps = QUICK_STEPS if report.quick else STEPS if coordinates <= MANY else FEW_STEPS
    jobs = {f"NumPyro {name}": ("guide", name, steps) for name in GUIDES} | {"PyMC ADVI": ("advi", steps)}
    if coordinates > MOST_COORDINATES:
        del jobs[f"NumPyro {DENSE_GUIDE}"]
        report.note(f"{DENSE_GUIDE} left out on {case.name}: {coordinates:,} coordinates")
    for tool, job in jobs.items():
        try:
            found = worker.ask(*job)
        except WorkerError as error:
            report.note(f"{tool} left out on {case.name}: {error}")
            continue
        names = [key for key in ("seconds", "seconds_to_best", "steps", "elbo", "gap") if key in found]
        report.add(case.name, tool, {key: found[key] for key in names} | score.of(found["draws"]), **rest)


class _Score:
    """M of draws against kept draws of NUTS, if there are any; random effects are drawn exactly given these."""

    def __init__(self, name: str, report: Report) -> None:
        self.name, self.report = name, report
        self.problem, self.found = PROBLEMS[name], kept_reference(name)
        self.draws = None
        if self.found is None:
            return report.note(f"no draws of NUTS kept for {name}: no M (python -m experiments.mixed_reference {name})")
        self.draws = self._with_effects(_thin(self.found["draws"].reshape(-1, self.found["draws"].shape[-1])))

    def of(self, path: str | None) -> dict[str, float]:
        """Return M of the draws in a file."""
        return {} if path is None else self._measure(np.load(path))

    def tell(self, rest: dict[str, Any]) -> None:
        """Add M of our two methods, and what NUTS took."""
        if self.found is None:
            return
        add = self.report.add
        for method in ("gva", "marginal"):
            add(self.name, f"natvi {method}, M", self._measure(self._own(method)), **rest)
        seconds = {"seconds": float(self.found["seconds"]), "smallest_ess": float(self.found["ess"].min())}
        chains, draws, _ = self.found["draws"].shape
        settings = {"chains": chains, "draws": draws, "when": "kept from an earlier run, all threads, with compilation"}
        add(self.name, "NUTS on the marginal", seconds, **(rest | {"threads": None}), settings=settings)

    def _own(self, method: str) -> np.ndarray:
        result = self.problem.gva if method == "gva" else self.problem.model.fit(method=method)
        local, shared = result.model.joint_draws(2 * MMD_DRAWS, 1, True)  # type: ignore[attr-defined]
        place = np.argsort(self.problem.built.place_of_group)  # the group at each place of the target
        return np.concatenate([local[..., place].reshape(len(local), -1), shared], axis=1)

    def _with_effects(self, shared: np.ndarray) -> np.ndarray:
        return np.concatenate([self.problem.conditional_draws(shared, 3), shared], axis=1)

    def _measure(self, draws: np.ndarray) -> dict[str, float]:
        if self.draws is None or not np.all(np.isfinite(draws)):
            return {}
        found = mmd_measure(draws, self.draws, size=MMD_DRAWS, evaluations=MMD_EVALUATIONS)
        return {"M": found.mean, "M_sd": found.sd}


def kept_reference(name: str) -> dict[str, Any] | None:
    """Return the longest run of NUTS that has been kept for a mixed model, or None."""
    runs = []
    for path in folder().glob(f"nuts-{name}-*.npz"):
        with np.load(path, allow_pickle=False) as file:
            runs.append(dict(file))
    return max(runs, key=lambda run: run["draws"].shape[1], default=None)


def _thin(draws: np.ndarray) -> np.ndarray:
    """Return equally spaced draws, twice as many as one evaluation of M takes."""
    return draws[np.linspace(0, len(draws) - 1, 2 * MMD_DRAWS).astype(int)]
