"""Which method fits a crossed model: the joint Gaussian where the integrated answer agrees, else that answer.

The joint Gaussian is right about coefficients and too narrow about sds where levels are few. The integrated answer
costs some hundred short ascents and is the better one, so that it judges the Gaussian; it is itself judged by how far
the exact density given the hyper-parameters would move it (`integrated.method`).
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natvi.judge import ladder
from natvi.judge.trust import CARE, GOOD, Trust
from natvi.linalg.crossed.blocked import BlockedMatrix
from natvi.models.mixed.crossed.gaussian import GaussianCrossedFit
from natvi.models.mixed.crossed.integrated.inner import AT_ONCE
from natvi.models.mixed.crossed.integrated.method import Points, Positions, integrate, mode_of_hyper
from natvi.models.mixed.crossed.integrated.posterior import IntegratedFit
from natvi.models.mixed.crossed.judge import judge_by_mode, judge_gaussian, judge_integrated, judge_open
from natvi.models.mixed.crossed.layout import Built
from natvi.models.mixed.crossed.posterior import CrossedFit
from natvi.models.regression.separation import separated
from natvi.run import Fitted, Outcome
from natvi.run.interrupt import Interruption
from natvi.target.mixed.largest_out import can_leave_out, has_gaussian_rows
from natvi.x64 import float64

MOST_SECONDS = 100.0  # that auto spends by itself on the points it begins with
SETTLING_SECONDS, MOST_POINTS = 20.0, 4096  # on more of them, until means and sds have settled
GLANCE_POINTS = 40  # to the mode, for its curvature
POINTS, STEPS = 300, 8  # points to begin with, those on the way to the mode included, and steps for each
PER_ROW, PER_PAIR, PER_CELL = 5e-7, 2e-8, 6e-11  # seconds of a step: for rows, pairs of pairs, the corner's size cubed
BROKEN = (Outcome.NONFINITE, Outcome.SINGULAR_FACTOR, Outcome.UNBOUNDED)
MOST_HYPER = 8
MOST_RATIOS, FEWEST_RATIOS = 64, 16  # draws that are weighted exactly at every point
WEIGHING_SECONDS, PER_WEIGHT = 30.0, 1e-7  # for all of them; for each and row, an integral of one dimension
LOOKS = 9  # times as long for two dimensions


class CrossedStage(NamedTuple):
    """A Gaussian fit of a crossed model with all that the next stage needs."""

    built: Built
    fitted: Fitted
    model: GaussianCrossedFit


class Chosen(NamedTuple):
    """The model to hand out, how it was approximated, and what is known about how far it can be trusted."""

    model: CrossedFit
    method: str
    outcome: Outcome
    elbo: float
    elbo_se: float
    steps: int | None
    concerns: tuple[Trust, ...] | None  # None: to be found when somebody asks


def choose(stage: CrossedStage, method: str, progress: bool = False) -> Chosen:
    """Return the Gaussian fit, or go on from it; Ctrl-C on the way gives the Gaussian fit back."""
    outcome = stage.fitted.outcome
    if method == "gva" or outcome in BROKEN or outcome is Outcome.INTERRUPTED:
        return _gaussian(stage, "", None)
    with Interruption() as interruption:
        try:
            if method == "integrated":
                return _integrated(stage, "")[0]
            if why := _too_large(stage):
                return _gaussian(stage, f"gva: {why}", None)
            chosen, doubts = _integrated(stage, "")
        except FloatingPointError as trouble:
            if method == "integrated":
                raise FloatingPointError(
                    f"method='integrated' gave no answer: {trouble}. Look for extreme values in the data, rescale "
                    "columns, give tighter priors, or fit with method='gva'."
                ) from trouble
            concern = Trust(CARE, (f"the integrated method gave no answer: {trouble}",))
            return _gaussian(stage, "gva: the integrated method gave no answer", (concern,))
        if interruption.asked:
            return _gaussian(stage, "gva: the integrated method was interrupted", None)._replace(
                outcome=Outcome.INTERRUPTED
            )
    if not doubts and outcome is Outcome.CONVERGED:
        assert isinstance(chosen.model, IntegratedFit)
        concerns = judge_gaussian(stage.model, chosen.model), *(chosen.concerns or ())
        return _gaussian(stage, "gva, since integrating over sds and dispersion gives the same", concerns)
    reason = doubts[0].partition(";")[0] if doubts else "the Gaussian fit did not settle"
    return chosen._replace(model=replace(chosen.model, choice=f"integrated, since under gva {reason}"))


def _gaussian(stage: CrossedStage, why: str, concerns: tuple[Trust, ...] | None) -> Chosen:
    fitted = stage.fitted
    model = replace(stage.model, choice=why) if why else stage.model
    return Chosen(model, "gva", fitted.outcome, fitted.elbo, 0.0, None, concerns)


def _too_large(stage: CrossedStage) -> str:
    """Say why the integrated method is not tried without being asked for, or nothing."""
    hyper = stage.built.target.b - stage.built.target.p
    if hyper > MOST_HYPER:
        return f"method='integrated' was not considered for {hyper} sds, correlations and dispersions"
    if POINTS * STEPS * _step_seconds(stage) > MOST_SECONDS:
        return "method='integrated' was not considered: it would take minutes"
    return ""


def _step_seconds(stage: CrossedStage) -> float:
    """Return about how long one step of an inner ascent takes."""
    target, corner = stage.built.target, len(stage.model.source.mean.shared)
    return PER_ROW * target.y.size + PER_PAIR * target.pattern.higher.size + PER_CELL * float(corner) ** 3


def _most_points(stage: CrossedStage) -> int:
    """Return how many points there may be until means and sds have settled."""
    return int(min(MOST_POINTS, SETTLING_SECONDS / (STEPS * _step_seconds(stage))))


def _num_ratios(stage: CrossedStage, points: int = POINTS) -> int:
    """Return how many draws are weighted exactly at every point; none where that cannot be, or takes long."""
    target = stage.built.target
    if not can_leave_out(target):
        return 0
    each = PER_WEIGHT * target.y.size * LOOKS ** (target.num_local - 1) * points
    found = int(min(MOST_RATIOS, WEIGHING_SECONDS / each))
    return found - found % 2 if found >= FEWEST_RATIOS else 0


def _integrated(stage: CrossedStage, why: str) -> tuple[Chosen, tuple[str, ...]]:
    """Return the integrated answer with the doubts it throws on the Gaussian."""
    target, model, fitted = stage.built.target, stage.model, stage.fitted
    if target.b == target.p:
        raise FloatingPointError("there is nothing to integrate")
    q, precision, p = fitted.gaussian, _precision(stage), target.p
    covariance = model.shared_covariance[p:, p:]
    at = {k - p for k in model.log_sd_positions().values()}
    others = set(range(target.b - p)) - at - {k - p for k in model.dispersion_position().values()}

    def read(hyper: np.ndarray) -> np.ndarray:
        return model.component_draws(np.concatenate([np.zeros((len(hyper), p)), hyper], axis=1))

    positions = Positions(sorted(at), sorted(others))
    sizes = _most_points(stage), _num_ratios(stage)
    points = integrate(target, q.mean, precision, covariance, positions, read, *sizes)
    found = _named(points, stage, why)
    concerns = (*judge_integrated(found, points), *judge_open(found), *_separation(model))
    doubts = ladder.doubts_in((judge_gaussian(model, found),))
    steps = fitted.steps + points.num_points
    bad = np.mean(points.described.inner.settled <= 0) > 0.5
    outcome = Outcome.STALLED if bad else Outcome.CONVERGED
    return Chosen(found, "integrated", outcome, points.log_evidence, points.error, steps, concerns), doubts


def _precision(stage: CrossedStage) -> BlockedMatrix:
    """Return the precision of the joint Gaussian."""
    with float64():
        pattern, factor = jax.tree.map(jnp.asarray, (stage.built.target.pattern, stage.fitted.gaussian.factor))
        return pattern.square(factor)


def _glance(stage: CrossedStage) -> Trust | None:
    """Hold the Gaussian against mode and curvature of the integrated density; None where that takes long too."""
    target = stage.built.target
    hyper = target.b - target.p
    if not 0 < hyper <= MOST_HYPER or GLANCE_POINTS * STEPS * _step_seconds(stage) > MOST_SECONDS:
        return None
    centre, covariance = stage.model.shared_moments()
    own = covariance[target.p :, target.p :]
    ratios = _num_ratios(stage, 2 * hyper + AT_ONCE)
    try:
        top = mode_of_hyper(target, stage.fitted.gaussian.mean, _precision(stage), own, centre[target.p :], ratios)
    except (FloatingPointError, np.linalg.LinAlgError):
        return None
    return judge_by_mode(stage.model, top, ratios > 0 or has_gaussian_rows(target))


def _named(points: Points, stage: CrossedStage, why: str) -> IntegratedFit:
    """Put names on weighted Gaussians: effects in the order of the data and the user's units."""
    model, built = stage.model, stage.built
    found, w = points.described, points.weights
    mean, sd = np.empty_like(model.effect_mean), np.empty_like(model.effect_sd)
    M = model.coordinates.random
    for term, local, (m, V) in zip(model.terms, built.plan.local, found.effects, strict=True):
        if local is not None:
            m, V = m[..., built.place], V[..., built.place]
        if M is not None:
            own = M[term.columns_of_Z, term.columns_of_Z]
            m, V = np.einsum("ka,san->skn", own, m), np.einsum("ka,sabn,lb->skln", own, V, own)
        middle = np.tensordot(w, m, axes=1)
        variance = np.tensordot(w, np.einsum("skkn->skn", V) + (m - middle) ** 2, axes=1)
        mean[term.own], sd[term.own] = middle.ravel(), np.sqrt(np.maximum(variance, 0.0)).ravel()
    draws = np.asarray(found.draws).reshape(-1, found.draws.shape[-1])
    inside = built.plan.num_local * built.plan.num_levels
    first = draws[:, :inside].reshape(len(draws), built.plan.num_local, -1)[..., built.place]
    flat = np.concatenate([first.reshape(len(draws), -1), draws[:, inside:]], axis=1)
    return IntegratedFit(
        **{**model.parts(), "choice": why, "effect_mean": mean, "effect_sd": sd},
        hyper=points.hyper,
        weights=w,
        beta=np.asarray(found.beta),
        beta_covariance=np.asarray(found.beta_covariance),
        drawn_beta=np.asarray(found.beta_draws).reshape(len(draws), -1),
        drawn_effects=flat,
        pareto_k=points.k,
    )


def lazy_check(stage: CrossedStage) -> partial[tuple[Trust, ...]]:
    """Return the check of a Gaussian fit, to be called when somebody looks at `trust`."""
    return partial(_check, stage)


def _check(stage: CrossedStage) -> tuple[Trust, ...]:
    if stage.fitted.outcome in BROKEN:
        return ()
    if why := _too_large(stage):
        if (found := _glance(stage)) is not None:
            return (found, *_separation(stage.model))
        words = f"the Gaussian was not held against a better answer ({why}); sds of few levels may be too certain"
        return (Trust(CARE, (words,)), *_separation(stage.model))
    try:
        chosen, _ = _integrated(stage, "")
    except FloatingPointError as trouble:
        return (Trust(CARE, (f"the check against the integrated answer failed: {trouble}",)),)
    assert isinstance(chosen.model, IntegratedFit)
    own = tuple(concern for concern in chosen.concerns or () if concern.level != GOOD)
    return (judge_gaussian(stage.model, chosen.model), *own)


def _separation(model: CrossedFit) -> tuple[Trust, ...]:
    if model.rows is None:
        return ()
    found = separated(model.rows.X, model.rows.y, model.fixed_names, model.family)
    cure = "merge levels, drop columns or set a tighter prior"
    return tuple(Trust(CARE, (f"{reason} (separation); {cure}",)) for reason in found)
