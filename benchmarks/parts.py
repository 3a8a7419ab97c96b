"""Parts of a call, warm: the verdict of a Gaussian fit beside the fit, and other links beside the logit.

The verdict (`trust`) of a `gva` fit is found when somebody looks at it; here somebody does, after every fit. Links are
compared by whole calls of `method="auto"` on the same yes/no responses; the marginal method is what they end with where
the Gaussian does not pass its check.
"""

import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from benchmarks.glmm import PROBLEMS
from benchmarks.report import Report

RUNS, QUICK_RUNS = 7, 2
NAMES = ("trust", "links")
LINKS = ("logit", "probit", "cloglog")
LINKED, LOOKED_AT = ("Toenail", "HERS"), ("Epilepsy", "sleepstudy", "Toenail", "HERS")


def run(report: Report, only: Sequence[str] = ()) -> None:
    """Measure both parts, or the one that is named."""
    wanted = {name.lower() for name in only} or set(NAMES)
    report.settings |= {"statistic": "minimum over alternating runs, in one warm process on all threads"}
    runs = QUICK_RUNS if report.quick else RUNS
    versions = {name: metadata.version(name) for name in ("natvi", "jax", "jaxlib")}
    for problem in PROBLEMS:
        load = problem.load
        if "trust" in wanted and problem.name in LOOKED_AT:
            _trust(report, problem, load(), runs, versions)
        if "links" in wanted and problem.name in LINKED:
            _links(report, problem, load(), runs, versions)


def _trust(report: Report, problem: Any, data: Any, runs: int, versions: dict[str, str]) -> None:
    import natvi

    seconds = {"fit": float("inf"), "trust": float("inf")}
    for done in range(runs + 1):
        fit, fitted = _timed(lambda: natvi.glmm(problem.formula, data, family=problem.family).fit(method="gva"))
        looked, _ = _timed(lambda fitted=fitted: fitted.trust)
        if done:  # the first compiles
            seconds = {"fit": min(fit, seconds["fit"]), "trust": min(looked, seconds["trust"])}
    metrics = {f"seconds of the {name}": value for name, value in seconds.items()}
    metrics["trust / fit"] = seconds["trust"] / seconds["fit"]
    report.add(problem.name, "natvi gva", metrics, threads="all", versions=versions)


def _links(report: Report, problem: Any, data: Any, runs: int, versions: dict[str, str]) -> None:
    import natvi

    best: dict[str, float] = {}
    method = ""
    for done in range(runs + 1):
        for link in LINKS:
            seconds, fitted = _timed(
                lambda link=link: natvi.glmm(problem.formula, data, family=problem.family, link=link).fit()
            )
            method = fitted.method
            if done:
                best[link] = min(seconds, best.get(link, float("inf")))
    for link, seconds in best.items():
        metrics = {"seconds": seconds, "of logit": seconds / best["logit"], "method": method}
        report.add(problem.name, f"natvi auto, {link}", metrics, threads="all", versions=versions)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found
