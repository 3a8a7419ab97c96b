"""Calibration of further families: how often intervals hold the truth, and where it ranks among draws.

Parameters are drawn from a narrow prior, responses given them, 60 data sets of 20 groups of three to nine rows for each
design; `auto` fits each with that prior. What is done is kept (`experiments.kept`), a file for each design;
RESPONSES_ONLY, designs between commas, computes these alone.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit

import natvi
from experiments.calibration_ranks import NUM_DRAWS, covered, histogram, simultaneous_band, within
from experiments.kept import is_kept, keep
from experiments.report import Report

DATA_SETS, QUICK, SEED = 60, 4, 3
GROUPS, FEWEST_ROWS, MOST_ROWS = 20, 3, 9
BINS = 10
LABEL, ONLY = "responsecalibration", "RESPONSES_ONLY"
COMMON: dict[str, Any] = {"x": 0.5, "sd": ("half_normal", 0.5)}


class Design(NamedTuple):
    """A family with the prior by which data are made and fitted: normals, and lognormals of what is positive."""

    family: str
    normals: dict[str, tuple[float, float]]
    positive: dict[str, tuple[float, float]]
    zero: str | None = None


DESIGNS = {
    "ordinal": Design("ordinal", {"Intercept": (0.5, 0.5)}, {"width(2)": (0.0, 0.3), "width(3)": (0.0, 0.3)}),
    "zero-inflated-poisson": Design("zero_inflated_poisson", {"Intercept": (1.0, 0.5), "zero": (-0.8, 0.5)}, {}),
    "zero-inflated-poisson-zero-z": Design(
        "zero_inflated_poisson",
        {"Intercept": (1.0, 0.5), "zero:Intercept": (-0.8, 0.5), "zero:z": (0.0, 0.5)},
        {},
        "~ z",
    ),
    "student-t": Design("student_t(4)", {"Intercept": (0.0, 0.5)}, {"sigma": (0.0, 0.3)}),
}


def run(report: Report) -> None:
    """Rank the truths of every design; `--quick` takes a few data sets of one."""
    report.settings |= {"data_sets": DATA_SETS, "data_seed": SEED, "groups": GROUPS, "draws": NUM_DRAWS}
    names = list(DESIGNS)[:1] if report.quick else list(DESIGNS)
    only = os.environ.get(ONLY, "")
    for name in names:
        if only and not is_kept(LABEL, name) and name not in only.split(","):
            continue
        number = QUICK if report.quick else DATA_SETS
        if report.quick:
            found = rank_all(name, number, Path())
        else:
            settings = {"data_sets": number, "seed": SEED, "draws": NUM_DRAWS}
            found = keep(LABEL, name, settings, partial(rank_all, name, number))
        tell(report, name, found)


def tell(report: Report, name: str, found: dict[str, Any]) -> None:
    """Fill the cells of one design."""
    for parameter, ranks in found["ranks"].items():
        own = np.array(ranks)
        counts, band = histogram(own, BINS), simultaneous_band(len(own), BINS)
        row = f"{name}: {parameter}"
        report.cell(row, "coverage of 90% intervals", "ranks", float(covered(own).mean()))
        report.cell(row, "smallest bin", "ranks", int(counts.min()))
        report.cell(row, "largest bin", "ranks", int(counts.max()))
        report.cell(row, "within the 99% band", "ranks", within(counts, band))
    for key in ("methods", "verdicts"):
        for word, count in found[key].items():
            report.cell(name, word, key, count)
    if found["refused"]:
        report.note(f"{name}: {found['refused']} data sets were refused, such as those without a zero.")


def rank_all(name: str, number: int, checkpoint: Path) -> dict[str, Any]:
    """Simulate, fit and rank."""
    ranks: dict[str, list[int]] = {}
    methods: dict[str, int] = {}
    verdicts: dict[str, int] = {}
    refused = 0
    for k in range(number):
        frame, truth = simulate(name, k)
        try:
            model = natvi.glmm("y ~ x + (1 | g)", frame, prior=prior_of(name), **_words(name))
        except ValueError:
            refused += 1
            continue
        result = model.fit()
        draws = result.sample(NUM_DRAWS, seed=k)
        for parameter, value in truth.items():
            ranks.setdefault(parameter, []).append(int(np.sum(draws[parameter] < value)))
        methods[result.method] = methods.get(result.method, 0) + 1
        verdicts[result.trust] = verdicts.get(result.trust, 0) + 1
    return {"ranks": ranks, "methods": methods, "verdicts": verdicts, "refused": refused}


def prior_of(name: str) -> dict[str, Any]:
    """Return the prior as `natvi.glmm` reads it."""
    design = DESIGNS[name]
    return COMMON | design.normals | {key: ("lognormal", *pair) for key, pair in design.positive.items()}


def _words(name: str) -> dict[str, Any]:
    design = DESIGNS[name]
    return {"family": design.family} | ({"zero": design.zero} if design.zero else {})


def simulate(name: str, number: int) -> tuple[pd.DataFrame, dict[str, float]]:
    """Draw parameters from the prior, and responses given them."""
    design, at = DESIGNS[name], list(DESIGNS).index(name)
    fixed, rng = np.random.default_rng([SEED, at]), np.random.default_rng([SEED, at, number])
    g = np.repeat(np.arange(GROUPS), fixed.integers(FEWEST_ROWS, MOST_ROWS + 1, GROUPS))
    n = len(g)
    x, z = fixed.standard_normal(n), fixed.standard_normal(n)
    truth = {key: rng.normal(*pair) for key, pair in design.normals.items()}
    truth |= {key: np.exp(rng.normal(*pair)) for key, pair in design.positive.items()}
    truth |= {"x": rng.normal(0.0, 0.5), "sd(Intercept|g)": abs(rng.normal(0.0, 0.5))}
    eta = truth["Intercept"] + truth["x"] * x + (truth["sd(Intercept|g)"] * rng.standard_normal(GROUPS))[g]
    if design.family == "ordinal":
        thresholds = np.cumsum([0.0, truth["width(2)"], truth["width(3)"]])
        y = 1.0 + np.sum((eta + rng.logistic(size=n))[:, None] > thresholds, axis=1)
    elif design.family.startswith("student"):
        y = eta + truth["sigma"] * rng.standard_t(4, n)
    else:
        logit = truth["zero"] if "zero" in truth else truth["zero:Intercept"] + truth["zero:z"] * z
        y = np.where(rng.uniform(size=n) < expit(logit), 0, rng.poisson(np.exp(eta))).astype(float)
        truth |= {"zero": float(expit(truth["zero"]))} if "zero" in truth else {}
    return pd.DataFrame({"y": y, "x": x, "z": z, "g": g}), truth
