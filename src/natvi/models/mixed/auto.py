"""Which method fits a mixed model: the exact Gaussian approximation if it passes its check, else the marginal method.

`auto` starts with the Gaussian, weights its shared coordinates by the exact marginal, and goes on to the marginal
method where that says that the Gaussian is off, and where it can: at most two random effects per group, or
Gaussian rows. What "off" means is said in `natvi.judge.thresholds`, and the ladder is `natvi.judge.ladder`.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from natvi.gaussian import ArrowPrecision
from natvi.judge import ladder
from natvi.judge.trust import CARE, GOOD, REFUSE, Trust
from natvi.judge.words import judge_weights
from natvi.linalg import ArrowVector
from natvi.metrics.psis import weighted_quantiles
from natvi.models.mixed.check import check_fit, judge_data, judge_separation, judge_shape, vague_components
from natvi.models.mixed.conditional import ConditionalSampler
from natvi.models.mixed.filling import shared_places, with_filling
from natvi.models.mixed.marginal.density import MarginalDensity
from natvi.models.mixed.marginal.method import FIRST_DRAWS, ROW_BUDGET, Positions, draw_marginal
from natvi.models.mixed.marginal.posterior import MarginalFit
from natvi.models.mixed.marginal.settle import MarginalDraws, further
from natvi.models.mixed.marginal.straight import fixed_effects
from natvi.models.mixed.posterior import MixedFit
from natvi.models.mixed.variance import component_draws
from natvi.optimize.arrow_system import Natural
from natvi.run import Fitted, Outcome, climb_groups
from natvi.run.compiled_code import quick_jit
from natvi.run.interrupt import Interruption
from natvi.run.progress import StepProgress
from natvi.target import SumOfTerms
from natvi.target.mixed.conditional import can_draw
from natvi.target.mixed.marginal import can_integrate, mixed_parts
from natvi.x64 import float64

CRAWLING = 200  # steps after which a fit that is not done is taken for one that never will be
MOST_ROWS = 400_000  # for which auto goes on by itself: the marginal method then takes minutes
STARTS_ROWS, STARTS_STEPS, APART, FACTOR = 20_000, 200, 0.1, 4.0  # of the further starts; nats; times an sd
NEAR_ZERO = 0.1  # lower end of the interval of an sd, relative to its median
LARGE = 8.0  # upper end of the interval of an sd on the link scale, from which the quadrature is looked at
ROUGH, WRONG = 0.1, 1.0  # nats by which the quadrature may be off
LOOKED_AT = 64  # draws
BROKEN = (Outcome.NONFINITE, Outcome.SINGULAR_FACTOR, Outcome.UNBOUNDED)


class GaussianStage(NamedTuple):
    """A Gaussian fit of a mixed model with all that the next stage needs.

    Attributes:
        target: The model.
        place: Where each group of the data stands in the target.
        posterior: The fit, its groups in the order of the target.
        model: The same in the order of the data, with names.
        fitted: What the ascent gave back.
    """

    target: SumOfTerms
    place: np.ndarray
    posterior: ArrowPrecision
    model: MixedFit
    fitted: Fitted


class Chosen(NamedTuple):
    """The model to hand out, how it was approximated, and what is known about how far it can be trusted."""

    model: MixedFit
    method: str
    outcome: Outcome
    elbo: float
    elbo_se: float
    trace: np.ndarray
    steps: int | None
    concerns: tuple[Trust, ...] | None  # None: to be found when somebody asks


def choose(stage: GaussianStage, method: str, progress: bool = False) -> Chosen:
    """Return the Gaussian fit, or go on from it; Ctrl-C on the way gives the Gaussian fit back.

    Args:
        stage: The Gaussian fit.
        method: "gva", "marginal" or "auto".
        progress: Show progress when it takes over a second.

    Returns:
        What was chosen.
    """
    outcome = stage.fitted.outcome
    if method == "gva" or outcome in BROKEN or outcome is Outcome.INTERRUPTED:
        return _gaussian(stage, "", None)
    with Interruption() as interruption:
        if method == "auto":
            return _automatic(stage, progress, interruption)
        try:
            return _marginal(stage, "", progress, interruption)
        except FloatingPointError as trouble:
            raise FloatingPointError(
                f"method='marginal' gave no draws: {trouble}. It needs a density that is finite near its mode. Look "
                "for extreme values in the data, rescale columns, give tighter priors, or fit with method='gva'."
            ) from trouble


def _automatic(stage: GaussianStage, progress: bool, interruption: Interruption) -> Chosen:
    outcome = stage.fitted.outcome
    steps = len(stage.fitted.trace)
    if outcome is Outcome.MAX_STEPS and steps < CRAWLING:
        return _gaussian(stage, "gva: the step limit came before the fit could be judged", None)
    if stage.model.num_rows > MOST_ROWS:
        return _gaussian(stage, f"gva: method='marginal' was not considered for over {MOST_ROWS:,} rows", None)
    if _is_undetermined(stage):
        names = ", ".join(stage.model.log_sd_positions())
        words = (
            f"single yes/no rows say nothing about {names}, whatever its interval says, and so nothing about the scale "
            "of the coefficients; leave the random effects out, or give a prior, prior={'sd': ('half_normal', 1.0)}"
        )
        concerns = (Trust(REFUSE, (words,)), *judge_data(stage.model))
        return _gaussian(stage, "gva: single yes/no rows in every group, with which no method can do better", concerns)
    shape = judge_shape(stage.target, stage.posterior, stage.model)
    if interruption.asked:
        return _interrupted(stage, "gva: interrupted before it was checked against the exact posterior")
    doubts = ladder.doubts_in(shape)
    if outcome is not Outcome.CONVERGED:
        doubts += (f"the Gaussian fit did not settle in {steps} steps, as with an sd close to zero",)
    if not doubts:
        concerns = (*shape, *_other_starts(stage), *judge_data(stage.model))
        return _gaussian(stage, "gva, since it passes the check against the exact posterior", concerns)
    first = ladder.Stage(_gaussian(stage, "", shape), shape, doubts)
    found = ladder.climb(first, [partial(_go_on, stage, progress, interruption)], partial(_stay, stage))
    return found.answer


def _go_on(
    stage: GaussianStage, progress: bool, interruption: Interruption, below: ladder.Stage[Chosen]
) -> ladder.Stage[Chosen]:
    """Take the rung from the Gaussian to the marginal method."""
    if not can_marginalise(stage.target):
        raise ladder.BrokenRungError("too many random effects per group")
    reason = below.doubts[0].partition(";")[0]
    try:
        chosen = _marginal(stage, f"marginal, since under gva {reason}", progress, interruption)
    except FloatingPointError as trouble:
        raise ladder.BrokenRungError(f"the marginal method gave no draws: {trouble}") from trouble
    return ladder.Stage(chosen, chosen.concerns or ())


def _stay(stage: GaussianStage, below: ladder.Stage[Chosen], trouble: str) -> ladder.Stage[Chosen]:
    """Keep the Gaussian, whose check it does not pass, and say why there is nothing better."""
    broken = f"{trouble}; look for extreme values, or give tighter priors"
    concerns = (*below.concerns, Trust(CARE, (broken,)), *judge_data(stage.model))
    why = f"gva, although it does not pass its check: {trouble.partition(':')[0]}"
    if not can_marginalise(stage.target):
        concerns = (*below.concerns, *judge_data(stage.model))
    return ladder.Stage(_gaussian(stage, why, concerns), concerns, below.doubts)


def _is_undetermined(stage: GaussianStage) -> bool:
    """Whether wider random effects with larger coefficients explain the data as well, and no prior on sds objects."""
    model, only_normal = stage.model, len(stage.target.shared) == 1
    return only_normal and model.family.name == "bernoulli" and model.num_rows == len(model.group_labels)


def can_marginalise(target: SumOfTerms) -> bool:
    """Whether the marginal method can fit this model."""
    return can_integrate(target) and can_draw(target)


def _gaussian(stage: GaussianStage, why: str, concerns: tuple[Trust, ...] | None) -> Chosen:
    fitted = stage.fitted
    model = _explained(stage.model, why)
    return Chosen(model, "gva", fitted.outcome, fitted.elbo, 0.0, fitted.trace, None, concerns)


def _interrupted(stage: GaussianStage, why: str) -> Chosen:
    return _gaussian(stage, why, None)._replace(outcome=Outcome.INTERRUPTED)


def lazy_check(stage: GaussianStage) -> partial[tuple[Trust, ...]]:
    """Return the check of a Gaussian fit, to be called when somebody looks at `trust`."""
    return partial(_check_gaussian, stage)


def _check_gaussian(stage: GaussianStage) -> tuple[Trust, ...]:
    starts = _other_starts(stage) if stage.fitted.outcome is Outcome.CONVERGED else ()
    return (*check_fit(stage.target, stage.posterior, stage.model), *starts)


def _explained(model: MixedFit, why: str) -> MixedFit:
    return replace(model, choice=why) if why else model


# --- the marginal method -------------------------------------------------------------------------------------


class StoppedError(Exception):
    """The user wants no more of the marginal method."""


def _marginal(stage: GaussianStage, why: str, progress: bool, interruption: Interruption) -> Chosen:
    if not can_marginalise(stage.target):
        raise ValueError(
            f"method='marginal' came for {len(stage.model.random_names)} random effects per group; it needs at most "
            "two unless the response is gaussian. Use method='gva', or fewer random effects."
        )
    model, fitted = stage.model, stage.fitted
    with StepProgress(progress, "marginal") as line:

        def watch(evaluated: int, value: float) -> None:
            line.update(evaluated, value)
            if interruption.asked:
                raise StoppedError

        density = MarginalDensity(stage.target, stage.posterior, watch)
        try:
            fixed = fixed_effects(stage.target, stage.posterior, model.prior.mean, model.prior.sd)
            draws = draw_marginal(
                density, *model.shared_moments(), _positions(model), model.num_rows, fixed, model.inner_readings
            )
        except StoppedError:
            return _interrupted(
                stage, "gva: the marginal method was interrupted, fit(state=result.state) starts it again"
            )
    sampler = ConditionalSampler.of(stage.target, np.asarray(stage.posterior.mean.local), stage.place)
    found = MarginalFit(
        **{**model.parts(), "choice": why},
        shared=draws.shared,
        weights=draws.weights,
        sampler=sampler,
        pareto_k=draws.k,
        more=partial(_more, MarginalDensity(stage.target, stage.posterior), draws, model.num_rows),
    )
    open_ends = (*_left_open(found), *_judge_large(found, stage))
    concerns = (
        judge_weights(len(draws.weights), draws.effective, draws.k),
        *open_ends,
        *judge_separation(found),
    )
    trace = np.append(fitted.trace, draws.log_evidence)
    steps = len(fitted.trace) + draws.steps
    return Chosen(found, "marginal", Outcome.CONVERGED, draws.log_evidence, draws.error, trace, steps, concerns)


def _more(density: MarginalDensity, draws: MarginalDraws, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Make the draws that are behind more than a thousand."""
    found = further(density, draws, min(FIRST_DRAWS, int(ROW_BUDGET / num_rows)))
    return found.shared, found.weights


def _positions(model: MixedFit) -> Positions:
    log_sds = list(model.log_sd_positions().values())
    slanted = [at for at in range(model.omega_start, len(model.shared_names())) if at not in log_sds]
    return Positions(list(model.dispersion_position().values()), log_sds, slanted)


def _left_open(fit: MarginalFit) -> tuple[Trust, ...]:
    """Name the sds that the data leave open: the draws are right about them, but a reader may overlook it."""
    low, middle = weighted_quantiles(component_draws(fit, fit.shared), fit.weights, [0.025, 0.5])
    small = [name for k, name in enumerate(fit.log_sd_positions()) if low[k] < NEAR_ZERO * middle[k]]
    vague = [name for name in vague_components(fit) if name not in small]
    reasons = [f"{', '.join(small)} may be close to zero: the prior decides how close"] if small else []
    reasons += [f"{', '.join(vague)} is poorly determined by the data: the prior matters for it"] if vague else []
    return (Trust(GOOD, tuple(reasons)),) if reasons else ()


def _judge_large(fit: MarginalFit, stage: GaussianStage) -> tuple[Trust, ...]:
    """Name the sds that may be far above the scale of the link: the data do not limit them, and quadrature is rough."""
    likelihood, _ = mixed_parts(stage.target)
    if fit.family.link == "identity":
        return ()
    filled = np.asarray(likelihood.design.filled)
    sizes = np.array([np.sqrt(np.mean(column[filled] ** 2)) for column in np.asarray(likelihood.design.Z)])
    (high,) = weighted_quantiles(component_draws(fit, fit.shared), fit.weights, [0.975])
    names = list(fit.log_sd_positions())
    large = [name for k, name in enumerate(names) if high[k] * sizes[k] > LARGE]
    if not large:
        return ()
    some = fit.shared_draws(LOOKED_AT, np.random.default_rng(0))
    error = MarginalDensity(stage.target, stage.posterior).quadrature_error(some)
    if error <= ROUGH:
        return ()
    words = (
        f"{', '.join(large)} may be very large, more than the data can tell apart, and there the random effects are "
        "integrated out only roughly; give a tighter prior, e.g. prior={'sd': ('half_normal', 2.5)}"
    )
    numbers = (("error of the integrals over random effects, in nats", error),)
    return (Trust(CARE if error <= WRONG else REFUSE, (words,), numbers),)


# --- further starts ------------------------------------------------------------------------------------------


def _other_starts(stage: GaussianStage) -> tuple[Trust, ...]:
    """Climb again from sds four times as large and as small, and compare the bounds."""
    if stage.model.num_rows > STARTS_ROWS:
        return ()
    best = stage.fitted.elbo
    positions = np.array(list(stage.model.log_sd_positions().values()))
    best_places, gaps = shared_places(stage.target, len(stage.posterior.mean.shared)), []
    positions = positions if best_places is None else best_places[positions]
    with float64():
        start = with_filling(stage.target, stage.posterior)
        for sign in (-1.0, 1.0):
            shared = np.array(start.mean.shared)
            shared[positions] += sign * np.log(FACTOR)
            again = climb_groups(stage.target, _natural_at(start, shared), max_steps=STARTS_STEPS)
            if again.outcome is Outcome.CONVERGED:
                gaps.append(again.elbo - best)
    if not gaps:
        return ()
    spread = max(gaps, key=abs)
    numbers = (("largest difference of the bound from other starts, in nats", spread),)
    if abs(spread) <= APART:
        return (Trust(GOOD, (f"{1 + len(gaps)} starts of the variance components end at the same answer",), numbers),)
    words = (
        f"another start of the variance components ends elsewhere, with a {'better' if spread > 0 else 'worse'} bound: "
        "there is more than one maximum; fit with method='marginal'"
    )
    return (Trust(CARE, (words,), numbers),)


@quick_jit
def _natural_at(posterior: ArrowPrecision, shared: Float[Array, " g"]) -> Natural:
    """Return natural parameters of the same Gaussian around other shared coordinates."""
    precision = posterior.factor.square()
    return Natural(precision.matvec(ArrowVector(posterior.mean.local, shared)), precision)
