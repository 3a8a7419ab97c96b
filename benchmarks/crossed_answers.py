"""Answers of `auto` for crossed and nested models, beside lme4 and beside NUTS on the same posterior.

Fixed effects are held against maximum likelihood in posterior sds, sds of effects as ratios; against NUTS means are
held in posterior sds and sds as ratios. Chains are run once: `experiments.memory` keeps what they found.
"""

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from experiments.crossed_truth import FEW, NUTS, SETTINGS, find_truth, find_truth_by_chain
from experiments.memory import recall
from experiments.verdict_outcomes import PRIORS, source_digest

import natvi
from benchmarks.crossed_problems import Problem
from benchmarks.peers import joined, largest_difference, start_peer
from benchmarks.report import Report
from benchmarks.workers import WorkerError
from natvi.models.mixed.crossed.door import CrossedModel

MOST_ROWS = 10_000  # for glmer


def answer(report: Report, name: str, problem: Problem) -> None:
    """Tell the answer of `auto`, and hold it against lme4 and NUTS."""
    frame = problem.read()
    model = natvi.glmm(problem.formula, frame, family=problem.family)
    fit = model.fit()
    table = fit.summary()
    metrics = {f"{row} {part}": float(table.loc[row, part]) for row in table.index for part in ("mean", "sd")}
    verdict = {"method": fit.method, "trust": fit.trust, "reasons": joined(fit.trust_reasons) or None}
    metrics = verdict | {"seconds_first_call": fit.seconds["total"]} | metrics
    report.add(name, "natvi auto", metrics, versions=_versions())
    if problem.family == "gaussian" or len(frame) < MOST_ROWS:
        _beside_lme4(report, name, problem, frame, fit)
    if problem.truth and not report.quick:
        assert isinstance(model, CrossedModel)
        _beside_nuts(report, name, problem, model, fit)


def _beside_lme4(report: Report, name: str, problem: Problem, frame: pd.DataFrame, fit: natvi.Result) -> None:
    """Add what lme4 finds, by maximum likelihood."""
    try:
        with tempfile.TemporaryDirectory() as folder, start_peer("lme4", 1) as worker:
            path = Path(folder) / "rows.csv"
            frame.to_csv(path, index=False)
            worker.ask("load", path)
            theirs, versions = worker.ask("fit", problem.family, problem.formula), worker.versions
    except WorkerError as error:
        report.note(f"lme4 left out on {name}: {error}")
        return
    own = fit.fixed_effects()
    ours = {"names": [str(row) for row in own.index], "estimates": own["mean"].tolist(), "sds": own["sd"].tolist()}
    metrics: dict[str, Any] = {"fixed_effects_max_difference_in_sds": largest_difference(ours, theirs)}
    components = fit.summary()["mean"]
    for group, effect, sd in zip(theirs["groups"], theirs["effects"], theirs["group_sds"], strict=True):
        row = "sigma" if group == "Residual" else f"sd({effect.strip('()')}|{group})"
        metrics[f"{row}, lme4"] = sd
        for at in (row, f"sd({effect.strip('()')}|{':'.join(reversed(group.split(':')))})"):
            if at in components.index and sd > 0:
                metrics[f"{row}, ratio of the posterior mean to it"] = float(components.loc[at]) / sd
                break
    metrics["remarks"] = joined(theirs["remarks"]) or None
    report.add(name, "natvi auto beside lme4", metrics, versions=versions)


def find_or_recall(name: str, problem: Problem, model: CrossedModel, seed: int) -> dict[str, Any]:
    """Return what chains found, now or earlier."""
    settings = {"problem": [name, problem.formula, problem.family], "seed": seed} | SETTINGS
    settings |= {"priors": source_digest(PRIORS)}
    if not problem.chains:
        return recall("crossed-answers", settings, lambda: find_truth(model, seed))
    settings |= {"nuts": FEW | {"num_chains": problem.chains, "target_accept": NUTS["target_accept"]}}
    return find_truth_by_chain(model, seed, settings, problem.chains)


def _beside_nuts(report: Report, name: str, problem: Problem, model: CrossedModel, fit: natvi.Result) -> None:
    true = find_or_recall(name, problem, model, report.seed)
    table = fit.summary()
    shift = (table["mean"].to_numpy() - true["table_mean"]) / true["table_sd"]
    ratio = table["sd"].to_numpy() / true["table_sd"]
    inside = [at for at, row in enumerate(table.index) if not row.startswith("sd(")]
    found = {
        "effective_draws": float(true["effective"]),
        "largest_rhat": float(true["rhat"]),
        "divergent": int(true["divergent"]),
        "largest_shift": float(np.max(np.abs(shift))),
        "largest_shift_of_coefficients": float(np.max(np.abs(shift[inside]))),
        "largest_shift_of_log_sds": float(np.max(np.abs(_log_sd_shifts(fit, true)))),
        "smallest_sd_ratio": float(ratio.min()),
        "largest_sd_ratio": float(ratio.max()),
    }
    report.add(name, "natvi auto beside NUTS", found, versions=_versions())


def _log_sd_shifts(fit: natvi.Result, true: dict[str, Any]) -> np.ndarray:
    """Return how far the means of the log sds are off, in sds of theirs."""
    at = list(fit.model.log_sd_positions().values())  # type: ignore[attr-defined]
    mean, _ = fit.model.shared_moments()  # type: ignore[attr-defined]
    return (mean[at] - true["shared_mean"][at]) / true["shared_sd"][at]


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("natvi", "jax", "numpyro")}
