"""How accurate the default answer is: `method="auto"` beside many more draws and twice the nodes, on Table 11's data.

The long run takes the same steps with 16,384 draws (Diabetes 8,192) and twice as many nodes per random effect. Told are
the largest shift of a mean, in sds, and the largest change of an sd, over fixed effects and variance components, and M,
the paper's measure of discrepancy over all variables, random effects included: of the default against the long run, and
of the long run against itself, which is the ceiling.
"""

from collections.abc import Sequence
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from benchmarks.glmm import PROBLEMS, Problem
from benchmarks.report import Report
from natvi.metrics import mmd_measure
from natvi.models.mixed.marginal import density as exact
from natvi.models.mixed.marginal import method

MANY, SIZE, EVALUATIONS = {"Diabetes": 8192}, 1000, {"Diabetes": 5}
DEFAULT_MANY, DEFAULT_EVALUATIONS, POOL = 16_384, 50, 4000
NAMES = tuple(problem.name for problem in PROBLEMS)
SMALL = ("Epilepsy", "sleepstudy")
LONG_POOL = {"Diabetes": 2000}


def run(report: Report, only: Sequence[str] = ()) -> None:
    """Compare all of Table 11's data sets, and sleepstudy with its two effects per group, or those named."""
    wanted = {name.lower() for name in only}
    versions = {name: metadata.version(name) for name in ("natvi", "jax", "numpy")}
    for problem in PROBLEMS:
        if wanted and problem.name.lower() not in wanted:
            continue
        if report.quick and problem.name not in SMALL:
            continue
        report.add(problem.name, "natvi auto", compare(problem, report.quick), versions=versions)


def compare(problem: Problem, quick: bool = False) -> dict[str, Any]:
    """Return the figures of one data set."""
    import natvi

    model = natvi.glmm(problem.formula, problem.load(), family=problem.family, prior="paper")
    default, long = model.fit(), long_run(model, 2048 if quick else MANY.get(problem.name, DEFAULT_MANY))
    (mean, sd), (true_mean, true_sd) = moments(default), moments(long)
    pool = 200 if quick else LONG_POOL.get(problem.name, POOL)
    size, evaluations = min(SIZE, pool // 2), 2 if quick else EVALUATIONS.get(problem.name, DEFAULT_EVALUATIONS)
    ours, first, second = (everything(fit, pool, seed) for fit, seed in ((default, 1), (long, 2), (long, 3)))
    measure = partial(mmd_measure, size=size, evaluations=evaluations, seed=1)
    return {
        "method": default.method,
        "draws": len(getattr(default.model, "weights", ())),
        "largest_shift_of_a_mean_in_sds": float(np.max(np.abs(mean - true_mean) / true_sd)),
        "largest_change_of_an_sd": float(np.max(np.abs(sd / true_sd - 1.0))),
        "M": measure(ours, first).mean,
        "M_of_the_long_run_itself": measure(second, first).mean,
    }


def long_run(model: Any, num_draws: int) -> Any:
    """Fit by the marginal method with that many draws from the start, and finer quadrature."""
    kept = method.FEW_DRAWS, method.FIRST_DRAWS, method.MOST_DRAWS, exact.default_nodes
    finer = partial(exact.default_nodes, times=2)
    method.FEW_DRAWS = method.FIRST_DRAWS = method.MOST_DRAWS = num_draws
    exact.default_nodes = lambda target, times=1: finer(target)
    try:
        return model.fit(method="marginal")
    finally:
        method.FEW_DRAWS, method.FIRST_DRAWS, method.MOST_DRAWS, exact.default_nodes = kept


def moments(fit: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return means and sds of fixed effects and variance components."""
    tables = fit.model.tables(0.95).values()
    return tuple(np.concatenate([table[name] for table in tables]) for name in ("mean", "sd"))  # type: ignore[return-value]


def everything(fit: Any, num_draws: int, seed: int) -> np.ndarray:
    """Return draws of all variables, in the coordinates of the fit."""
    local, shared = fit.model.joint_draws(num_draws, seed, True)
    return np.concatenate([local.reshape(num_draws, -1), shared], axis=1)
