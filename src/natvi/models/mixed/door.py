"""The formula door to mixed models."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from natvi.families.table import Family, find_family, find_streamed
from natvi.formula.design import Design, parse_formula
from natvi.formula.dot import expand_dot, refuse_dot
from natvi.formula.margins import products_of
from natvi.gaussian import ArrowPrecision
from natvi.hosts.tables import is_spread
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.models.mixed.auto import MOST_ROWS, GaussianStage, choose, lazy_check
from natvi.models.mixed.crossed.door import CrossedModel, crossed_model
from natvi.models.mixed.draws import effect_covariances
from natvi.models.mixed.filling import without_filling
from natvi.models.mixed.marginal.density import prepare
from natvi.models.mixed.noisy.method import Noise, fit_with_noise
from natvi.models.mixed.notes import describe_data, refuse_empty_effects
from natvi.models.mixed.posterior import MixedFit
from natvi.models.mixed.spread.door import SpreadMixed, spread_glmm
from natvi.models.mixed.target import build_target
from natvi.models.mixed.variance import precision_factors
from natvi.models.regression.criticism import Drawn
from natvi.models.regression.family.formulas import build_with_parts, given_parts, refuse_parts
from natvi.models.regression.family.responses import complete_family
from natvi.models.regression.options import check_options, choose_method
from natvi.models.regression.origin import Origin
from natvi.models.regression.prior.choice import Prior, choose_prior
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.prior.draws import draw_prior
from natvi.models.regression.prior.predictive import DrawsFromPrior
from natvi.models.regression.response import encode_response, refuse_overflow
from natvi.models.regression.rows import Covariates, Rows, gather
from natvi.result import Result
from natvi.run import climb_groups
from natvi.run.clock import Stopwatch
from natvi.run.exact.loop import LoopState
from natvi.target.mixed.marginal import can_integrate
from natvi.x64 import float64

METHODS = ("auto", "gva", "marginal", "rvb1", "rvb2")
ARROW = "arrow"


@dataclass(frozen=True, eq=False)
class MixedModel(DrawsFromPrior):
    """A mixed model with its data, ready to be fitted; the columns of `design` are those of the prior's coordinates."""

    formula: str
    family: Family
    design: Design
    group_name: str
    y: np.ndarray
    prior: Prior
    notes: tuple[str, ...]
    weight: np.ndarray | None = None  # how often each row counts, trials included
    constants: np.ndarray | None = None  # of the weighted log-likelihood of each row
    trials: np.ndarray | None = None
    origin: Origin | None = None

    @property
    def constant(self) -> float:
        """The sum of the constants."""
        return 0.0 if self.constants is None else float(np.sum(self.constants))

    def fit(
        self,
        *,
        method: str = "auto",
        optimizer: str | None = None,
        order: int = 1,
        step_size: float | None = None,
        num_samples: int = 1,
        seed: int = 0,
        max_steps: int | None = None,
        tolerance: float = 1e-9,
        state: Any = None,
        progress: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 2.0,
    ) -> Result:
        """Fit the model.

        Args:
            method: "gva", the Gaussian approximation with the arrow-shaped precision; "marginal", which goes on from
                there: random effects integrated out, shared parameters drawn by importance sampling and the random
                effects exactly given them; "auto" takes "gva", checks it against the exact marginal, and goes on to
                "marginal" where it is off. "rvb1" and "rvb2" are the paper's reparametrized models: Gaussian in random
                effects that are standardised about predictors of the data, or about their modes.
            optimizer: "ascent", exact and without randomness, for "auto", "gva" and "marginal"; for noisy steps of
                "gva" (Algorithm 2S), "rvb1" and "rvb2" (Algorithm 1S) "snngm", "nagm", "adam", "nadam", "pga" or
                "vogn". By default "ascent", for "rvb1" and "rvb2" "snngm".
            order: For noisy steps: 1 for first derivatives of the log-density, 2 for second.
            step_size: For noisy steps; by default the optimizer's own.
            num_samples: For noisy steps: draws per step.
            seed: For noisy steps: the same seed gives the same bits.
            max_steps: Steps at most, those of `state` included; by default 500 exact or 40,000 noisy ones.
            tolerance: For "ascent": the relative rise of the bound at which the fit stops.
            state: `result.state` of an earlier fit of the same model by the same method, to go on from.
            progress: Show progress when the fit takes over a second.
            checkpoint: A file that keeps the state, so that a killed fit goes on where it was.
            checkpoint_seconds: The least time between two writes of the checkpoint.

        Returns:
            The result, converged or not: nothing is thrown away.
        """
        noise = Noise(order, step_size, num_samples, seed)
        fitting = choose_method(METHODS, method, optimizer, noise._asdict(), ARROW)
        keeping = check_options(
            max_steps,
            40_000 if fitting.is_noisy else 500,
            tolerance,
            state=state,
            progress=progress,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
        )
        if self.family.parts and fitting.method in ("rvb1", "rvb2"):
            raise ValueError(
                f"method={fitting.method!r} needs rows with one predictor, and formulas of the dispersion or of zeros "
                "give them several. Use 'auto', 'gva' or 'marginal'."
            )
        if not fitting.is_noisy and state is not None and not isinstance(state, LoopState):
            raise ValueError(
                f"state must be `result.state` of an earlier fit by the same method, not {type(state).__name__}. Leave "
                "it out to start afresh."
            )
        watch = Stopwatch()
        with float64():
            fill_up = not fitting.is_noisy  # noisy steps would be other steps with empty groups
            mixed = build_target(self.design, self.y, self.family, self.prior, self.weight, self.constant, fill_up)
            target, start, place = mixed
            named = partial(self._fitted, place=place)
            if fitting.is_noisy:
                return fit_with_noise(mixed, named, fitting, noise, watch, **keeping)
            if fitting.method != "gva" and can_integrate(target) and len(self.y) <= MOST_ROWS:
                prepare(target, start.linear.local.shape[1], len(start.linear.shared))
            fitted = climb_groups(target, start, tolerance=tolerance, **keeping)
        posterior = without_filling(target, fitted.gaussian, len(self.prior.mean))
        covariances = effect_covariances(posterior)
        model = named(posterior, covariances)
        stage = GaussianStage(target, place, posterior, model, fitted)
        chosen = choose(stage, fitting.method, progress)
        concerns = chosen.concerns
        return Result(
            model=chosen.model,
            method=chosen.method,
            optimizer=fitting.optimizer,
            structure=ARROW,
            outcome=chosen.outcome,
            elbo=chosen.elbo,
            elbo_se=chosen.elbo_se,
            seconds=watch.read(),
            trace=chosen.trace,
            state=fitted.state,
            check=lazy_check(stage) if concerns is None else lambda: concerns,
            steps=chosen.steps,
        )

    def prior_draws(self, num_draws: int, rng: np.random.Generator) -> Drawn:
        """Draw shared coordinates and random effects from the prior."""
        design = self.design
        assert design.group_labels is not None
        p, r = design.X.shape[1], design.Z.shape[1]
        shared = draw_prior(self.prior, num_draws, rng)
        W = precision_factors(r, shared[:, p + self.family.num_extras :], design.correlated)
        z = rng.standard_normal((num_draws, r, len(design.group_labels)))
        effects = np.linalg.solve(np.swapaxes(W, 1, 2), z)  # theta = W^-T z
        return Drawn(self.family, Covariates(design.X, design.offset, design.Z, design.group_codes), shared, effects)

    def _fitted(self, posterior: ArrowPrecision, covariances: np.ndarray, place: np.ndarray) -> MixedFit:
        """Put names on a Gaussian, its groups brought from the target's order into the data's.

        `covariances` `(r, r, n)` are those of each group's random effects.
        """
        design = self.design
        assert design.group_labels is not None and design.group_codes is not None
        extra = (self.weight, self.trials, self.constants, design.Z, design.group_codes)
        return MixedFit(
            formula=self.formula,
            family=self.family,
            columns=design.columns,
            fixed_names=design.fixed_names,
            random_names=design.random_names,
            group_name=self.group_name,
            group_labels=design.group_labels,
            posterior=_in_order(posterior, place),
            local_sds=self.prior.coordinates.effect_sds(covariances)[..., place],
            prior=self.prior,
            num_rows=len(self.y),
            notes=self.notes,
            correlated=design.correlated,
            rows=Rows(design.X, self.y, design.offset, *extra),
            origin=self.origin,
        )


def _in_order(posterior: ArrowPrecision, place: np.ndarray) -> ArrowPrecision:
    """Bring the groups back from the target's order to the data's."""
    mean, factor, inverse = posterior
    return ArrowPrecision(
        ArrowVector(mean.local[..., place], mean.shared),
        ArrowFactor(factor.local[..., place], factor.cross[..., place], factor.shared),
        inverse,
    )


def glmm(
    formula: str,
    data: Any,
    *,
    family: str = "gaussian",
    link: str | None = None,
    prior: Any = "default",
    weights: Any = None,
    missing: str = "drop",
    dispersion: str | None = None,
    zero: str | None = None,
) -> MixedModel | CrossedModel | SpreadMixed:
    """Describe a generalized linear mixed model; `.fit()` gives its posterior.

    Args:
        formula: For example `"y ~ base*trt + age + (1 | subject)"`; `||` in place of `|` makes random effects
            uncorrelated, `p(y, n)` left of `~` means y successes of n trials. Several terms make crossed factors,
            `(1 | a) + (1 | b)`; `(1 | a/b)` is b nested in a, `(1 | a:b)` their combinations.
        data: A data frame, or anything pandas makes one of; or a table in pieces (`natvi.hosts.parquet`, `arrays`,
            `pieces`). After `natvi.hosts.join()` it is this process's part of the rows: whole groups, one factor.
        family: As for `natvi.glm`. The expected response of a binomial model, in predictions too, is the proportion of
            successes.
        link: As for `natvi.glm`.
        prior: "default", weakly informative and scaled to the data, so that units and zeros of the columns do not
            matter; "paper" for N(0, 10^2) on every shared parameter; a number, the sd of every fixed effect; a dict
            from fixed effects to an sd or a pair (mean, sd), and from "sd", "sd(x|g)", "corr" or the dispersion's name
            to a density, e.g. `{"x": 2.5, "sd": ("half_normal", 1.0), "corr": ("lkj", 2.0), "sigma": 3.0}`, all on the
            scale of the data as they are; or `model.prior` of another model with the same parameters, whose numbers
            are taken over.
        weights: How often each row counts: the name of a column, or one number for each row.
        missing: "drop" leaves out rows with missing values and says how many; "error" refuses them.
        dispersion: A formula of the dispersion, such as "~ x" or "~ x + (1 | g)", g being the factor of the mean: its
            coefficients act on log(sigma), log(phi) or log(shape). By default one number for all rows.
        zero: The same of the probability of a zero, on the logit scale, for zero-inflated and hurdle families.

    Returns:
        The model.

    Example:
        >>> import natvi
        >>> model = natvi.glmm("Reaction ~ Days + (Days | Subject)", natvi.data.load_sleepstudy())
        >>> model.design.random_names
        ('Intercept', 'Days')
    """
    chosen = find_family(family, link)
    spread = is_spread(data)
    formula = refuse_dot(formula) if spread else expand_dot(formula, data, weights)
    parsed = parse_formula(formula)
    if not parsed.has_groups:
        raise ValueError(
            f"The formula {formula!r} has no random effects. Add them, e.g. '{formula} + (1 | group)'; for a model "
            "without groups use natvi.glm."
        )
    given = given_parts(dispersion, zero)
    if spread:
        refuse_parts(given)
        chosen = find_streamed(family, link)
        return spread_glmm(formula, data, chosen, prior, weights, missing)
    design, chosen = build_with_parts(parsed, data, missing, weights, chosen, given)
    refuse_empty_effects(design, parsed.group or "...")
    refuse_overflow(np.column_stack([design.X, design.Z]), (*design.fixed_names, *design.random_names))
    words = {"family": family, "link": link, "prior": prior, "weights": weights, "missing": missing} | given
    origin = Origin.of(formula, data, design.rows, **words)
    response = encode_response(design.response, design.response_name, chosen.name, design.trials)
    chosen = complete_family(chosen, response.values, design.response_name)
    rows = gather(Covariates(design.X, design.offset), response, design.weights)
    if parsed.group is None:
        return replace(crossed_model(formula, chosen, design, response, rows, prior), origin=origin)
    y, weight = rows.y, rows.weight
    recipe = design.columns
    chosen_prior = choose_prior(
        prior,
        chosen,
        PriorData(
            *(y, design.X, design.Z, design.offset if recipe.offset else None, weight),
            *(products_of(recipe.fixed), products_of(recipe.random)),
        ),
        names=design.fixed_names,
        correlated=design.correlated,
        random_names=design.random_names,
        group=parsed.group,
    )
    notes = (*response.notes, *describe_data(design, y, parsed.group, chosen, response.trials))
    notes = (*notes, chosen_prior.note) if chosen_prior.note else notes
    inside = chosen_prior.coordinates
    design = replace(design, X=inside.columns(design.X), Z=inside.random_columns(design.Z))
    counts = (weight, rows.constants, rows.trials)
    return MixedModel(formula, chosen, design, parsed.group, y, chosen_prior, notes, *counts, origin)
