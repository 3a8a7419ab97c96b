"""Crossed and nested models: natvi's answers beside lme4's and NUTS's, and its time and memory as data grow.

Answers of `auto` are held against NUTS on the same prior (shift in posterior sds, ratio of sds); seconds are of the
second whole call in this process, for `gva`, on whatever threads it takes.
"""

import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import natvi
from benchmarks.report import Report
from natvi.data.external import data_folder
from natvi.linalg import ArrowVector
from natvi.models.mixed.crossed.layout import build_crossed
from natvi.models.mixed.crossed.start import crossed_start, rough_values
from natvi.optimize.structured.blocked_system import BlockedSystem
from natvi.reference import nuts
from natvi.run import climb
from natvi.x64 import float64

DRAWS, WARMUP, CHAINS, THINNING = 2000, 1500, 4, 8
GROWTH, QUICK_GROWTH = (20_000, 200_000, 2_000_000), (20_000,)


class Problem(NamedTuple):
    """A model with its data; `peer` is the call in R."""

    formula: str
    family: str
    read: Callable[[], pd.DataFrame]
    peer: str = ""
    truth: bool = False


def _file(name: str) -> pd.DataFrame:
    return pd.read_csv(data_folder() / name)


def _grouseticks() -> pd.DataFrame:
    return _file("grouseticks/grouseticks.csv").assign(YEAR=lambda frame: frame["YEAR"].astype(str))


def crossed_binary(seed: int = 5, n: int = 30) -> pd.DataFrame:
    """Simulate yes/no rows of n x n levels, at most two rows a cell."""
    rng = np.random.default_rng(seed)
    a, b = (np.tile(part.ravel(), 2) for part in np.meshgrid(np.arange(n), np.arange(n)))
    keep = rng.uniform(size=len(a)) < 0.6
    a, b = a[keep], b[keep]
    x = rng.normal(size=len(a))
    eta = -0.3 + 0.7 * x + rng.normal(size=n)[a] + 0.6 * rng.normal(size=n)[b]
    return pd.DataFrame({"y": (rng.uniform(size=len(a)) < 1 / (1 + np.exp(-eta))).astype(int), "x": x, "a": a, "b": b})


def growing(rows: int, seed: int = 0) -> pd.DataFrame:
    """Simulate yes/no rows, ten of each id, in 500 cities."""
    rng = np.random.default_rng(seed)
    ids, city = np.repeat(np.arange(rows // 10), 10), rng.integers(0, 500, rows)
    X = rng.normal(size=(rows, 4))
    eta = -0.3 + X @ [0.5, -0.3, 0.2, 0.0] + rng.normal(size=rows // 10)[ids] + 0.5 * rng.normal(size=500)[city]
    hit = (rng.uniform(size=rows) < 1 / (1 + np.exp(-eta))).astype(int)
    return pd.DataFrame(X, columns=list("wxyz")).assign(hit=hit, id=ids, city=city)


TICKS = "TICKS ~ YEAR + cHEIGHT + (1 | BROOD) + (1 | INDEX) + (1 | LOCATION)"
PROBLEMS = {
    "penicillin": Problem(
        "diameter ~ 1 + (1 | plate) + (1 | sample)",
        "gaussian",
        lambda: _file("penicillin/penicillin.csv"),
        "lmer(diameter ~ 1 + (1 | plate) + (1 | sample), d)",
        True,
    ),
    "pastes": Problem(
        "strength ~ 1 + (1 | batch/cask)",
        "gaussian",
        lambda: _file("pastes/pastes.csv"),
        "lmer(strength ~ 1 + (1 | batch/cask), d)",
        True,
    ),
    "grouseticks": Problem(TICKS, "poisson", _grouseticks, f"glmer({TICKS}, d, family = poisson)", True),
    "binary": Problem("y ~ x + (1 | a) + (1 | b)", "bernoulli", crossed_binary, "", True),
    "insteval": Problem(
        "y ~ service + (1 | s) + (1 | d)",
        "gaussian",
        lambda: _file("insteval/InstEval.csv.gz"),
        "lmer(y ~ service + (1 | s) + (1 | d), d)",
    ),
    "insteval_binary": Problem(
        "good ~ service + (1 | s) + (1 | d)",
        "bernoulli",
        lambda: _file("insteval/InstEval.csv.gz").assign(good=lambda frame: (frame["y"] >= 4).astype(int)),
    ),
}
NAMES = (*PROBLEMS, "growth")


def run(report: Report, only: Sequence[str]) -> None:
    """Fit every problem."""
    versions = {name: version(name) for name in ("natvi", "jax", "numpyro")}
    for name, problem in PROBLEMS.items():
        if not only or name in {part.lower() for part in only}:
            _fit(report, name, problem, versions)
    if not only or "growth" in only:
        for rows in QUICK_GROWTH if report.quick else GROWTH:
            frame, before = growing(rows), time.perf_counter()
            fit = natvi.glmm("hit ~ w + x + y + z + (1 | id) + (1 | city)", frame, family="bernoulli").fit(method="gva")
            report.add(
                f"growth {rows:,}",
                "natvi gva",
                {
                    "seconds_first_call": time.perf_counter() - before,
                    "seconds_without_compilation": fit.seconds["run"],
                    "steps": len(fit.trace),
                    "peak_gib_of_process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
                },
                versions=versions,
            )


def _fit(report: Report, name: str, problem: Problem, versions: dict[str, str]) -> None:
    frame = problem.read()
    model = natvi.glmm(problem.formula, frame, family=problem.family)
    model.fit(method="gva")
    before = time.perf_counter()
    gva = natvi.glmm(problem.formula, frame, family=problem.family).fit(method="gva")
    report.add(name, "natvi gva", {"seconds_warm": time.perf_counter() - before, "elbo": gva.elbo}, versions=versions)
    fit = model.fit()
    table = fit.summary()
    report.add(name, f"natvi auto ({fit.method}, {fit.trust})", _plain(table), versions=versions)
    if problem.peer and not report.quick:
        report.add(name, "lme4", _lme4(frame, problem.peer), versions={"R": "lme4"})
    if problem.truth and not report.quick:
        shared, ess = draw_truth(model)
        true = fit.model.readings(shared)  # type: ignore[union-attr]
        shift = (table["mean"].to_numpy() - true.mean(0)) / true.std(0)
        found = {"effective_draws": ess, "largest_shift": float(np.max(np.abs(shift)))}
        ratio = table["sd"].to_numpy() / true.std(0)
        found |= {"smallest_sd_ratio": float(ratio.min()), "largest_sd_ratio": float(ratio.max())}
        report.add(name, "natvi auto beside NUTS", found, versions=versions)


def _plain(table: pd.DataFrame) -> dict[str, Any]:
    pairs = [(name, part) for name in table.index for part in ("mean", "sd")]
    return {f"{name} {part}": float(table[part].to_numpy()[table.index.get_loc(name)]) for name, part in pairs}


def _lme4(frame: pd.DataFrame, call: str) -> dict[str, Any]:
    """Return seconds and fixed effects of one call in a fresh R."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        frame.to_csv(path, index=False)
        script = (
            f"suppressMessages(library(lme4)); d <- read.csv('{path}'); "
            "if ('YEAR' %in% names(d)) d$YEAR <- factor(d$YEAR); "
            f"t <- system.time(m <- {call}); cat(t[['elapsed']], fixef(m), as.data.frame(VarCorr(m))$sdcor)"
        )
        done = subprocess.run(["Rscript", "-e", script], capture_output=True, text=True, check=True)
    seconds, *values = map(float, done.stdout.split())
    return {"seconds": seconds, **{f"number {k}": value for k, value in enumerate(values)}}


def draw_truth(model: Any, seed: int = 0) -> tuple[np.ndarray, float]:
    """Draw coefficients, dispersion and omega by NUTS, whitened by the joint Gaussian; and the least effective size."""
    with float64():
        built = build_crossed(model.design, model.y, model.family, model.prior, model.weight, 0.0)
        values, information = rough_values(model.design, model.y, model.family, model.prior, model.weight)
        target = built.target
        start = crossed_start(target, jnp.asarray(values), jnp.asarray(information))
        q = jax.device_put(climb(BlockedSystem.around(target, target.pattern, start), start).gaussian)
        shape, size = q.mean.local.shape, q.mean.local.size
        push = jax.jit(jax.vmap(lambda z: q.push(ArrowVector(z[:size].reshape(shape), z[size:])).shared[: target.b]))
    zero = ArrowVector(np.zeros(shape), np.zeros(q.mean.shared.shape))  # type: ignore[arg-type]
    found = nuts(
        lambda z: target.value(q.push(z)),
        zero,
        covariance=np.ones(size + q.mean.shared.size),
        num_draws=DRAWS,
        num_warmup=WARMUP,
        num_chains=CHAINS,
        thinning=THINNING,
        seed=seed,
    )
    with float64():
        shared = np.concatenate([np.asarray(push(jnp.asarray(chain))) for chain in found.draws])
    return shared, float(found.ess.min())
