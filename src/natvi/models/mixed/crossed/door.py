"""Models with crossed or nested factors, from a design to a result."""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family
from natvi.formula.columns import TermRecipe
from natvi.formula.design import Design
from natvi.formula.margins import products_of
from natvi.gaussian.blocked_precision import BlockedPrecision
from natvi.models.mixed.crossed.auto import Chosen, CrossedStage, choose, lazy_check
from natvi.models.mixed.crossed.components import FittedTerm
from natvi.models.mixed.crossed.gaussian import GaussianCrossedFit, Source
from natvi.models.mixed.crossed.layout import Built, build_crossed
from natvi.models.mixed.crossed.notes import describe_factors
from natvi.models.mixed.crossed.start import crossed_start, rough_values
from natvi.models.regression.criticism import Drawn
from natvi.models.regression.options import check_options, choose_method
from natvi.models.regression.origin import Origin
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.prior.draws import draw_prior
from natvi.models.regression.prior.predictive import DrawsFromPrior
from natvi.models.regression.prior.several import TermScales, choose_several
from natvi.models.regression.response import Response
from natvi.models.regression.rows import Covariates, Rows
from natvi.optimize.structured.blocked_system import BlockedSystem
from natvi.result import Result
from natvi.run import climb
from natvi.run.clock import Stopwatch
from natvi.run.compiled_code import quick_jit
from natvi.run.exact.loop import LoopState
from natvi.target.mixed.crossed import TermEffects
from natvi.x64 import float64, to_host

METHODS = ("auto", "gva", "integrated")
BLOCKED = "blocked"


@dataclass(frozen=True, eq=False)
class CrossedModel(DrawsFromPrior):
    """A mixed model with several random terms and its data, ready to be fitted; columns are the prior's coordinates."""

    formula: str
    family: Family
    design: Design
    y: np.ndarray
    prior: Prior
    notes: tuple[str, ...]
    weight: np.ndarray | None = None
    constants: np.ndarray | None = None
    trials: np.ndarray | None = None
    origin: Origin | None = None

    def fit(
        self,
        *,
        method: str = "auto",
        optimizer: str | None = None,
        max_steps: int | None = None,
        tolerance: float = 1e-9,
        state: Any = None,
        progress: bool = False,
        checkpoint: Any = None,
        checkpoint_seconds: float = 2.0,
        **noise: Any,
    ) -> Result:
        """Fit the model.

        Args:
            method: "gva", the Gaussian approximation of all effects and parameters together, with the blocked
                precision; "integrated", which goes on from there: sds, correlations and dispersion are integrated
                numerically, and given them the rest is the best Gaussian; "auto" takes "gva" where the other agrees.
            optimizer: "ascent", exact and without randomness.
            max_steps: Steps at most, those of `state` included; by default 500.
            tolerance: The relative rise of the bound at which the fit stops.
            state: `result.state` of an earlier fit of the same model, to go on from.
            progress: Show progress when the fit takes over a second.
            checkpoint: A file that keeps the state, so that a killed fit goes on where it was.
            checkpoint_seconds: The least time between two writes of the checkpoint.
            noise: Settings of noisy steps, which are refused.

        Returns:
            The result, converged or not.
        """
        _refuse_others(method, optimizer)
        fitting = choose_method(METHODS, method, optimizer, {"num_samples": 1, **noise}, BLOCKED)
        keeping = check_options(
            max_steps,
            500,
            tolerance,
            state=state,
            progress=progress,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
        )
        if state is not None and not isinstance(state, LoopState):
            raise ValueError(
                f"state must be `result.state` of an earlier fit by the same method, not {type(state).__name__}. Leave "
                "it out to start afresh."
            )
        watch = Stopwatch()
        with float64():
            built, (values, information) = self.build(), self.rough_values()
            start = crossed_start(built.target, jnp.asarray(values), jnp.asarray(information))
            system = BlockedSystem.around(built.target, built.target.pattern, start)
            fitted = climb(system, start, tolerance=tolerance, **keeping)
            model = self._fitted(fitted.gaussian, built)
        stage = CrossedStage(built, fitted, model)
        chosen = self.choose(stage, fitting.method, progress)
        concerns = chosen.concerns
        return Result(
            model=chosen.model,
            method=chosen.method,
            optimizer=fitting.optimizer,
            structure=BLOCKED,
            outcome=chosen.outcome,
            elbo=chosen.elbo,
            elbo_se=chosen.elbo_se,
            seconds=watch.read(),
            trace=fitted.trace,
            state=fitted.state,
            check=lazy_check(stage) if concerns is None else lambda: concerns,
            steps=chosen.steps,
        )

    def build(self) -> Built:
        """Return the target with what is needed to come back to the order of the data."""
        constant = 0.0 if self.constants is None else float(np.sum(self.constants))
        return build_crossed(self.design, self.y, self.family, self.prior, self.weight, constant)

    def rough_values(self) -> tuple[np.ndarray, float]:
        """Return rough values of the shared coordinates to start from, and the information about the dispersion."""
        return rough_values(self.design, self.y, self.family, self.prior, self.weight)

    def choose(self, stage: CrossedStage, method: str, progress: bool) -> Chosen:
        """Return the Gaussian fit, or go on from it."""
        return choose(stage, method, progress)

    def rows_for(self) -> Rows | None:
        """Return the rows that the fitted model holds."""
        design = self.design
        codes = np.stack([term.codes for term in design.terms], axis=1)
        return Rows(design.X, self.y, design.offset, self.weight, self.trials, self.constants, design.Z, codes)

    def prior_draws(self, num_draws: int, rng: np.random.Generator) -> Drawn:
        """Draw shared coordinates and random effects from the prior."""
        design, shared = self.design, draw_prior(self.prior, num_draws, rng)
        codes, pieces, place = [], [], 0
        for term in fitted_terms(design, self.family, None):
            own = term._replace(place=place)
            pieces.append(own.fresh(shared, own.num_levels, rng))
            codes.append(own.flat_codes(design.terms[len(codes)].codes, 0, 0))
            place += own.r * own.num_levels
        local = np.concatenate(pieces, axis=1)[:, None]
        rows = Covariates(design.X, design.offset, design.Z, np.concatenate(codes, axis=1))
        return Drawn(self.family, rows, shared, local)

    def _fitted(self, q: BlockedPrecision, built: Built) -> GaussianCrossedFit:
        """Put names on a Gaussian."""
        design = self.design
        terms = fitted_terms(design, self.family, built)
        moments = to_host(_effect_moments(built.target.effects, q))
        mean, sd = effect_tables(terms, moments, built, self.prior)
        return GaussianCrossedFit(
            formula=self.formula,
            family=self.family,
            columns=design.columns,
            fixed_names=design.fixed_names,
            terms=terms,
            prior=self.prior,
            num_rows=len(self.y),
            notes=self.notes,
            effect_mean=mean,
            effect_sd=sd,
            rows=self.rows_for(),
            source=Source.of(q, built.place),
            origin=self.origin,
            shared_covariance=np.asarray(q.covariance)[: built.target.b, : built.target.b],
        )


@quick_jit
def _effect_moments(effects: tuple[TermEffects, ...], q: BlockedPrecision) -> Any:
    return [term.moments(q, 0, 0) for term in effects]


def effect_tables(
    terms: tuple[FittedTerm, ...], moments: Any, built: Built, prior: Prior
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and sds of all effects in the user's units, flat, from moments of each term's levels."""
    size = sum(term.r * term.num_levels for term in terms)
    mean, sd, M = np.empty(size), np.empty(size), prior.coordinates.random
    for term, local, (m, V) in zip(terms, built.plan.local, moments, strict=True):
        if local is not None:
            m, V = m[:, built.place], V[..., built.place]
        if M is not None:
            own = M[term.columns_of_Z, term.columns_of_Z]
            m, V = own @ m, np.einsum("ka,abn,lb->kln", own, V, own)
        mean[term.own] = m.ravel()
        sd[term.own] = np.sqrt(np.maximum(np.einsum("kkn->kn", V), 0.0)).ravel()
    return mean, sd


def fitted_terms(design: Design, family: Family, built: Built | None) -> tuple[FittedTerm, ...]:
    """Return the terms with their places."""
    places = [0] * len(design.terms) if built is None else built.plan.flat_places(design.terms)
    found, omega = [], design.X.shape[1] + family.num_extras
    for term, place in zip(design.terms, places, strict=True):
        own = (term.group, term.columns, term.names, term.labels, term.correlated, term.first, place, omega)
        found.append(FittedTerm(*own))
        omega += found[-1].num_omega
    return tuple(found)


def crossed_model(
    formula: str, family: Family, design: Design, response: Response, rows: Rows, prior: Any
) -> CrossedModel:
    """Choose the prior and look at the data."""
    notes = (*response.notes, *describe_factors(design, rows.y, family, response.trials))
    chosen = choose_crossed_prior(family, design, rows, prior)
    notes = (*notes, chosen.note) if chosen.note else notes
    inside = chosen.coordinates
    design = replace(design, X=inside.columns(design.X), Z=inside.random_columns(design.Z))
    return CrossedModel(formula, family, design, rows.y, chosen, notes, rows.weight, rows.constants, rows.trials)


def choose_crossed_prior(family: Family, design: Design, rows: Rows, prior: Any) -> Prior:
    """Return the prior, scaled to the data where it is."""
    recipe = design.columns
    data = PriorData(
        *(rows.y, design.X, design.Z, design.offset if recipe.offset else None, rows.weight),
        products_of(recipe.fixed),
    )
    scales = tuple(
        TermScales(term.names, term.group, design.Z[:, term.first : term.stop], products_of(own), term.correlated)
        for term, own in zip(design.terms, _recipes(design), strict=True)
    )
    return choose_several(prior, family, data, design.fixed_names, scales)


def _recipes(design: Design) -> list[list[TermRecipe]]:
    """Return the recipes of each random term's columns."""
    waiting, found = list(design.columns.random), []
    for term in design.terms:
        own: list[TermRecipe] = []
        while sum(len(recipe.names) for recipe in own) < term.r:
            own.append(waiting.pop(0))
        found.append(own)
    return found


def _refuse_others(method: str, optimizer: str | None) -> None:
    if method in ("marginal", "rvb1", "rvb2"):
        raise ValueError(
            f"method={method!r} is for one grouping factor, and this model has several terms: effects of two factors "
            "cannot be integrated out group by group. Use method='integrated' or 'gva'."
        )
    if optimizer not in (None, "ascent"):
        raise ValueError(
            f"optimizer={optimizer!r} takes noisy steps, which are built for one grouping factor only. Leave it out: "
            "the exact ascent serves crossed factors."
        )
