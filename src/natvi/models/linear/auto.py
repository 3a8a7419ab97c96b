"""Which answer a linear model gives: its Gaussian if that passes its check, else importance-corrected draws."""

import time
from dataclasses import replace
from functools import partial

import numpy as np

from natvi.judge import ladder, thresholds
from natvi.judge.importance import importance_draws
from natvi.judge.trust import Trust
from natvi.judge.words import judge_weights
from natvi.models.linear.check import judge_data, judge_shape, measure_shape
from natvi.models.linear.corrected import CorrectedFit
from natvi.models.linear.log_joint import log_joint
from natvi.models.linear.posterior import GlmFit
from natvi.result import Result
from natvi.run import Outcome

MOST_CELLS = 1_000_000  # rows times coefficients, up to which `auto` checks its Gaussian before it hands it out


def go_on(result: Result, method: str) -> Result:
    """Return the Gaussian fit, or the corrected draws: for "psis" always, for "auto" where the Gaussian is off.

    Args:
        result: Of the exact ascent; its check is made when somebody asks, unless it is made here.
        method: "auto", "psis" or "gva".
    """
    fit = result.model
    assert isinstance(fit, GlmFit) and fit.rows is not None
    if method == "gva" or result.outcome is not Outcome.CONVERGED:
        return result
    started = time.perf_counter()
    if method == "psis":
        found = _correct(ladder.Stage(result, ()), asked=True)
    elif fit.rows.X.size > MOST_CELLS or fit.is_diagonal:
        return result
    else:
        verdict = judge_shape(fit, measure_shape(fit, fit.rows))
        first = ladder.Stage(result, (verdict,), ladder.doubts_in((verdict,)))
        found = ladder.climb(first, [_correct], lambda below, trouble: below)
    spent = time.perf_counter() - started
    seconds = {name: value + (spent if name != "compile" else 0.0) for name, value in result.seconds.items()}
    return replace(found.answer, check=partial(_all_concerns, fit, found.concerns), seconds=seconds)


def _all_concerns(fit: GlmFit, found: tuple[Trust, ...]) -> tuple[Trust, ...]:
    return (*found, *judge_data(fit))


def _correct(below: ladder.Stage[Result], asked: bool = False) -> ladder.Stage[Result]:
    """Take the rung from the Gaussian to weighted draws."""
    result = below.answer
    fit = result.model
    assert isinstance(fit, GlmFit) and fit.rows is not None
    rows = fit.rows
    found = importance_draws(lambda theta: log_joint(fit.family, fit.prior, rows, theta), fit.mean, fit.factor)
    if found is None or (not asked and found.effective < thresholds.FEWEST_EFFECTIVE):
        raise ladder.BrokenRungError("the weighted draws do not represent the posterior")
    reason = below.doubts[0].partition(";")[0] if below.doubts else ""
    try:
        model = CorrectedFit.of(fit, found, f"psis, since under the Gaussian {reason}" if reason else "")
    except np.linalg.LinAlgError as trouble:
        raise ladder.BrokenRungError("the weighted draws have no covariance") from trouble
    # log_joint lacks -(d/2) log 2 pi
    evidence = found.log_evidence - 0.5 * len(fit.mean) * np.log(2 * np.pi)
    better = replace(result, model=model, method="psis", elbo=float(evidence), elbo_se=found.error)
    return ladder.Stage(better, (judge_weights(len(found.weights), found.effective, found.k),))
