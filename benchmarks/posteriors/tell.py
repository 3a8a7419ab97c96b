"""Rows and notes of the suite: what a fit was, beside what was said of it."""

from collections import Counter
from statistics import median
from typing import Any

import numpy as np

from benchmarks.posteriors.measure import Accuracy
from benchmarks.posteriors.posterior import Posterior
from benchmarks.report import Report

SEPARATED = 6.0  # sds between modes, beyond which no local check can see the other
SMALL = 250  # dimensions up to which fits are to be quick
Run = dict[str, Any]


def accuracy(run: Run) -> Accuracy:
    """Return how far an answer is off; infinitely where there is none."""
    return Accuracy(*(np.inf if run.get(name) is None else run[name] for name in ("shift", "change")))


def kind(run: Run) -> str:
    """Say what a run is: accurate, near, off; silent where it is called good and is far off."""
    if "error" in run:
        return "error"
    found = accuracy(run)
    if found.far_off and run["trust"] == "good":
        return "separated" if run["modes_apart"] > SEPARATED else "silent"
    if found.accurate:
        return "accurate" if run["trust"] == "good" else "false alarm"
    return "near" if run["trust"] == "good" else "said to be off"


def tell_member(
    report: Report, member: Posterior, runs: list[Run], truth: Run, times: Run, versions: dict[str, str]
) -> None:
    """Write natvi's rows of one member; `times` are CPU seconds alone on the machine, if there are any."""
    if "error" in truth:
        report.note(f"{member.name}: no true draws: {truth['error']}")
        return
    done = [run for run in runs if "error" not in run]
    counts = Counter(map(kind, runs))
    metrics: dict[str, Any] = {
        "dimensions": truth["dimensions"],
        "gaussian_can_serve": f"{sum(run['served'] for run in runs)} of {len(runs)}",
        "runs": len(runs),
        "accurate": counts["accurate"] + counts["false alarm"],
        "good": sum(run["trust"] == "good" for run in done),
        "silent": counts["silent"],
        "worst_mean_in_sds": max((accuracy(run).shift for run in done), default=np.inf),
        "worst_sd_share": max((accuracy(run).change for run in done), default=np.inf),
        "method": ", ".join(dict.fromkeys(run["method"] for run in done)),
        "cpu_seconds": median(run["cpu_seconds"] for run in done) if done else None,
        "alone_cpu_seconds": times.get("cpu_seconds"),
        "alone_warm_cpu_seconds": times.get("warm_cpu_seconds"),
    }
    report.add(member.name, "natvi", metrics, threads=1, versions=versions)
    for run in runs:
        if kind(run) not in ("accurate", "near"):
            words = run.get("error") or "; ".join(run["reasons"][:1])
            which = f"{member.name}, data {run['data_seed']}, seed {run['fit_seed']}: {kind(run)}"
            report.note(f"{which} (mean {_show(run, 'shift')} sds, sd {_show(run, 'change')}): {words}")


def _show(run: Run, name: str) -> str:
    return "not finite" if run.get(name) is None else f"{run[name]:.2f}"


def tell_all(report: Report, runs: list[Run], versions: dict[str, str]) -> None:
    """Write what is asked of the whole suite."""
    parts = {
        "all": runs,
        "a Gaussian can serve": [run for run in runs if run["served"]],
        "a Gaussian cannot serve": [run for run in runs if not run["served"]],
    }
    for name, part in parts.items():
        counts = Counter(map(kind, part))
        right = counts["accurate"] + counts["false alarm"]
        small = [run for run in part if "error" not in run and run["dimensions"] <= SMALL]
        busy = [run["cpu_seconds"] for run in small]
        alone = [run["times"] for run in small if "cpu_seconds" in run["times"]]
        metrics = {
            "runs": len(part),
            "accurate_share": right / len(part) if part else None,
            "good_share": sum(run.get("trust") == "good" for run in part) / len(part) if part else None,
            "silent": counts["silent"],
            "separated_modes_not_seen": counts["separated"],
            "alarm_share_of_accurate": counts["false alarm"] / right if right else None,
            "errors": counts["error"],
            "median_cpu_seconds_d_to_250": median(busy) if busy else None,
            "largest_cpu_seconds_d_to_250": max(busy, default=None),
            "largest_alone_cpu_seconds_d_to_250": max((t["cpu_seconds"] for t in alone), default=None),
            "largest_alone_warm_cpu_seconds_d_to_250": max((t["warm_cpu_seconds"] for t in alone), default=None),
        }
        report.add(name, "natvi", metrics, threads=1, versions=versions)


def tell_peer(report: Report, member: Posterior, tool: str, found: Run, truth: Run, versions: dict[str, str]) -> None:
    """Write a row of another tool; an error is a note."""
    if "error" in found or "error" in truth:
        report.note(f"{member.name}, {tool}: {found.get('error') or truth['error']}")
        return
    metrics = {
        "accurate": accuracy(found).accurate,
        "mean_in_sds": accuracy(found).shift,
        "sd_share": accuracy(found).change,
        "cpu_seconds": found["cpu_seconds"],
    }
    report.add(member.name, tool, metrics, threads=1, versions=versions)


def tell_times(report: Report, times: dict[str, Run], versions: dict[str, str]) -> None:
    """Write the CPU seconds of one fit of every member, and the largest of those of up to 250 dimensions."""
    done = {slug: found for slug, found in times.items() if "error" not in found}
    for slug, found in done.items():
        report.add(slug, "natvi", found, threads=1, versions=versions)
    small = [found for found in done.values() if found["dimensions"] <= SMALL]
    cold, warm = ([found[name] for found in small] for name in ("cpu_seconds", "warm_cpu_seconds"))
    metrics = {
        "members": len(small),
        "median_cpu_seconds": median(cold) if small else None,
        "largest_cpu_seconds": max(cold, default=None),
        "at_most_2_seconds": sum(one <= 2.0 for one in cold),
        "median_warm_cpu_seconds": median(warm) if small else None,
        "largest_warm_cpu_seconds": max(warm, default=None),
        "warm_below_0.3_seconds": sum(one < 0.3 for one in warm),
    }
    report.add(f"all of up to {SMALL} dimensions", "natvi", metrics, threads=1, versions=versions)
    for slug, found in times.items():
        if "error" in found:
            report.note(f"{slug}: {found['error']}")
