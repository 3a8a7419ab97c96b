"""Every family of responses: `auto` beside NUTS, and beside the estimates of R.

Simulated groups, one predictor. NUTS samples the same posterior, with the random effects standardised. R's glmmTMB,
lme4 and ordinal give maximum-likelihood estimates, whose distance is told in posterior sds. Then two data sets for the
check of the model: ratings of lectures (InstEval) as numbers and as ordered categories, and zero-inflated counts as
Poisson counts and as what they are.

What is done is kept (`experiments.kept`), so that a run goes on where the last one stopped; RESPONSES_ONLY, words
between commas, computes and keeps these alone.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

import natvi
from experiments.kept import is_kept, keep
from experiments.report import Report
from experiments.response_data import PROBLEMS, model_of, simulate
from natvi.linalg import ArrowVector
from natvi.models.mixed.target import build_target
from natvi.reference import nuts
from natvi.target.mixed.marginal import mixed_parts
from natvi.x64 import float64

GROUPS, ROWS_EACH, SEED = 40, 8, 11
DRAWS, WARMUP = 1_500, 500
SHIFT, RATIO = 0.1, 1.1
SAME = ("width", "zero:", "phi:")  # what R estimates too, beside the coefficients of the mean
LABEL, ONLY = "responses", "RESPONSES_ONLY"
ORDER = sorted(PROBLEMS, key=lambda name: ("ordinal, logit", "zero_inflated_poisson", "student_t").count(name) == 0)
R_HEAD = """
suppressPackageStartupMessages({library(glmmTMB); library(lme4)})
polr_like <- function(m) { a <- m$alpha; c(-a[1], m$beta, diff(a)) }
d <- read.csv("%s")
cat(jsonlite_free(as.numeric(%s)))
"""


def run(report: Report) -> None:
    """Compare all families; `--quick` takes two."""
    settings: dict[str, Any] = {"groups": GROUPS, "rows": GROUPS * ROWS_EACH, "seed_of_data": SEED}
    settings |= {"nuts": {"chains": 2, "draws": DRAWS, "warmup": WARMUP}, "wanted": [SHIFT, RATIO]}
    report.settings |= settings
    if report.quick:
        for name in ORDER[:2]:
            one(name, report)
        return
    parts: dict[str, Callable[[Report], None]] = {"zero-inflated counts": zeros, "InstEval": ratings}
    parts |= {name: partial(one, name) for name in ORDER}
    only, left = os.environ.get(ONLY, ""), []
    for name, fill in parts.items():
        file = re.sub(r"\W+", "-", name).strip("-")
        if only and not is_kept(LABEL, file) and file not in only.split(","):
            left.append(name)
            continue
        try:
            found = keep(LABEL, file, settings, partial(_part, name, fill))
        except Exception:  # one family that fails must not hide the others
            report.note(f"{name} failed: {traceback.format_exc(limit=1)}")
            report.say(f"{name}: {traceback.format_exc(limit=-8)}")
            continue
        report.cells += found["cells"]
        report.notes += found["notes"]
    if left:
        report.note(f"Not run yet: {', '.join(left)}.")


def _part(name: str, fill: Callable[[Report], None], checkpoint: Path) -> dict[str, Any]:
    """Return the cells and notes of one part."""
    part, began = Report(name), time.perf_counter()
    fill(part)
    return {"cells": part.cells, "notes": part.notes, "seconds": round(time.perf_counter() - began, 1)}


def one(name: str, report: Report) -> None:
    """Fill the cells of one family."""
    data = simulate(name, GROUPS, ROWS_EACH, SEED)
    model = model_of(name, data)
    result = model.fit()
    table = result.summary()
    truth = reference(model)
    weights = np.full(len(truth), 1.0 / len(truth))
    fit: Any = result.model
    theirs = fit.readings(truth)
    mean, sd = weights @ theirs, theirs.std(axis=0)
    ours = np.array([table["mean"], table["sd"]])
    shift, ratio = np.abs(ours[0] - mean) / sd, np.exp(np.abs(np.log(ours[1] / sd)))
    report.cell(name, "method", "beside NUTS", result.method)
    report.cell(name, "verdict", "beside NUTS", result.trust)
    report.cell(name, "largest shift of a mean, in sds", "beside NUTS", float(shift.max()))
    report.cell(name, "of", "beside NUTS", str(table.index[int(shift.argmax())]))
    report.cell(name, "largest ratio of sds", "beside NUTS", float(ratio.max()))
    estimates = peer(PROBLEMS[name].peer, data)
    if estimates is not None:
        same = [row for row in table.index if row in ("Intercept", "x") or row.startswith(SAME)]
        distance = np.abs(table["mean"][same] - estimates) / table["sd"][same]
        report.cell(name, "largest distance of R's estimate, in sds", "beside R", float(distance.max()))
    report.say(f"{name}: {result.method}, shift {shift.max():.3f}, ratio {ratio.max():.3f}, R {estimates}")


def reference(model: Any) -> np.ndarray:
    """Return draws of NUTS of the shared coordinates; the random effects are standardised."""
    with float64():
        built = build_target(model.design, model.y, model.family, model.prior, model.weight, model.constant)
        _, effects = mixed_parts(built.target)
        gaussian = model.fit(method="gva").model
        n = gaussian.posterior.mean.local.shape[1]
        shared = np.asarray(gaussian.posterior.mean.shared)

        def log_density(point: Any) -> Any:
            z, theta = point[:n], point[n:]
            w = effects.precision_factor(theta)[0, 0]
            # theta_i = z_i / w; its density is that of the model times 1 / w a group
            return built.target.value(ArrowVector((z / w)[None], theta)) - n * jnp.log(w)

        variances = np.append(np.full(n, 0.3), np.sum(np.asarray(gaussian.posterior.inverse_shared) ** 2, axis=0))
        found = nuts(
            log_density,
            jnp.asarray(np.append(np.zeros(n), shared)),
            covariance=jnp.asarray(variances),
            num_draws=DRAWS,
            num_warmup=WARMUP,
        )
    return found.flat()[:, n:]


def peer(call: str, data: pd.DataFrame) -> np.ndarray | None:
    """Return R's estimates, or None where R has no such model or is not installed."""
    program = shutil.which("Rscript")
    if not call or program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.csv"
        data.to_csv(file, index=False)
        script = R_HEAD.replace("jsonlite_free", "(function(v) paste0('[', paste(v, collapse = ','), ']'))")
        text = subprocess.run(
            [program, "--vanilla", "-e", script % (file, call)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
        ).stdout
    return np.array(json.loads(text)) if text.startswith("[") else None


def ratings(report: Report) -> None:
    """Fit InstEval's ratings as numbers, then as ordered categories."""
    folder = Path(os.environ.get("NATVI_DATA", "")) / "insteval"
    if not folder.is_dir():
        return report.note("InstEval was not at hand (NATVI_DATA).")
    data = pd.read_csv(folder / "InstEval.csv.gz")
    for family in ("gaussian", "ordinal"):
        result = natvi.glmm("y ~ service + (1 | s)", data, family=family).fit(method="gva")
        check = result.model.check_model()
        report.cell("InstEval", f"outcome, {family}", "checks of the model", str(result.outcome))
        report.cell("InstEval", f"verdict on the model, {family}", "checks of the model", check.level)
        report.cell("InstEval", f"seconds, {family}", "checks of the model", round(result.seconds["total"], 2))
        report.note(f"InstEval, {family}: {'; '.join(check.reasons)}.")


def zeros(report: Report) -> None:
    """Fit zero-inflated counts as Poisson counts, then as what they are."""
    data = simulate("zero_inflated_poisson", GROUPS, ROWS_EACH, SEED)
    for family in ("poisson", "zero_inflated_poisson"):
        check = natvi.glmm("y ~ x + (1 | g)", data, family=family).fit().model.check_model()
        report.cell("zero-inflated counts", f"verdict on the model, {family}", "checks of the model", check.level)
        report.note(f"Zero-inflated counts, {family}: {'; '.join(check.reasons)}.")
