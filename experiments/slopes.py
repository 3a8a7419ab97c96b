"""Random slopes: the marginal method beside NUTS, every shared parameter of sleepstudy and contraception.

Both sample the posterior of the shared parameters with the random effects integrated out by the same quadrature; the
marginal method by weighted draws, NUTS by walking. Draws of NUTS are kept by `experiments.memory`; where there are
none, they are made here, which takes two minutes for sleepstudy and twenty for contraception.

In contraception the sd of the slopes may be zero. How much of the posterior says so is known in a third way: where the
sd is so small that the slopes do nothing, the posterior is that of the model without slopes times the prior of the sd,
and the two evidences give its mass.
"""

from typing import Any

import numpy as np
from scipy.stats import norm

import natvi
from experiments.mixed_problems import PROBLEMS, SLOPES, MixedProblem
from experiments.mixed_reference import describe, reference
from experiments.report import Report
from experiments.verdict_truth import moments
from natvi.models.mixed.marginal.coordinates import from_shared
from natvi.models.mixed.variance import component_names

LARGEST_SHIFT, LARGEST_RATIO = 0.1, 1.1
WITHOUT_SLOPES = {"contraception": "use ~ age + urban + livch + (1 | district)"}
NOTHING = -4.0  # log sd below which slopes do nothing


def run(report: Report) -> None:
    """Compare means and sds; `--quick` takes sleepstudy with few draws."""
    report.settings |= {"allowed_shift": LARGEST_SHIFT, "allowed_ratio": [1 / LARGEST_RATIO, LARGEST_RATIO]}
    worst = {}
    for name in SLOPES[:1] if report.quick else SLOPES:
        worst[name] = one(PROBLEMS[name], report)
    for name, (shift, ratio) in worst.items():
        report.note(
            f"{name}: no mean is further than {shift:.3f} posterior sds from that of NUTS, no sd more than {ratio:.3f} "
            "times as large or as small."
        )
    report.note(
        f"Wanted: below {LARGEST_SHIFT} and {LARGEST_RATIO}. NUTS has an error of its own: 1 / sqrt(effective draws) "
        "posterior sds of a mean."
    )


def one(problem: MixedProblem, report: Report) -> tuple[float, float]:
    """Fill the cells of one model; return the largest shift and ratio."""
    result = problem.model.fit(method="marginal")
    fit: Any = result.model
    kept = reference(problem, 0, report.quick)
    about = describe(kept)
    report.settings[problem.name] = {"formula": problem.formula, "nuts": about, "seconds": result.seconds["total"]}
    report.settings[problem.name] |= {"pareto_k": fit.pareto_k, "effective": fit.effective}
    report.say(f"{problem.name}: NUTS {about}; marginal worth {fit.effective:.0f} draws, k {fit.pareto_k:.2f}")
    draws = kept["draws"].reshape(-1, kept["draws"].shape[-1])
    ours = moments(fit, fit.shared, fit.weights)
    theirs = moments(fit, draws, np.full(len(draws), 1.0 / len(draws)))
    shifts = (ours["table_mean"] - theirs["table_mean"]) / theirs["table_sd"]
    ratios = ours["table_sd"] / theirs["table_sd"]
    for at, parameter in enumerate((*fit.fixed_names, *component_names(fit))):
        row = f"{problem.name}: {parameter}"
        for column, found in (("marginal", ours), ("NUTS", theirs)):
            report.cell(row, column, "mean", float(found["table_mean"][at]))
            report.cell(row, column, "sd", float(found["table_sd"][at]))
        report.cell(row, "marginal against NUTS", "shift in sds", float(shifts[at]))
        report.cell(row, "marginal against NUTS", "ratio of sds", float(ratios[at]))
    if problem.name in WITHOUT_SLOPES:
        near_zero(problem, result, draws, report)
    return float(np.abs(shifts).max()), float(np.exp(np.abs(np.log(ratios)).max()))


def near_zero(problem: MixedProblem, result: Any, draws: np.ndarray, report: Report) -> None:
    """Fill the cells about slopes that do nothing: the mass there by weighted draws, by evidences and by NUTS."""
    fit = result.model
    smaller = natvi.glmm(WITHOUT_SLOPES[problem.name], problem.load(), family=problem.family, prior=problem.prior).fit(
        method="marginal"
    )
    prior = problem.model.prior
    # omega_22 = -log sd is the last coordinate; the others of omega have the same prior in both models
    share = norm.sf(-NOTHING, prior.mean[-1], prior.sd[-1])
    low, visited = (from_shared(points)[:, -1] < NOTHING for points in (fit.shared, draws))
    row = f"{problem.name}: log sd of the slopes below {NOTHING:g}"
    report.cell(row, "marginal", "posterior mass", float(fit.weights @ low))
    report.cell(row, "NUTS", "posterior mass", float(visited.mean()))
    report.cell(row, "evidences", "posterior mass", float(share * np.exp(smaller.elbo - result.elbo)))
    visits = int(np.sum(np.diff(visited.astype(int)) == 1))
    report.note(f"{problem.name}: NUTS came to where slopes do nothing {visits} times, which is its error there.")
