"""The formula door to mixed models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from natvi.fit import climb
from natvi.fit.clock import Stopwatch
from natvi.fit.loop import LoopState
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.models.formula import Design, build_design, parse_formula
from natvi.models.likelihoods import Family, find_family
from natvi.models.mixed_auto import GaussianStage, choose, lazy_check
from natvi.models.mixed_criticism import MixedRows
from natvi.models.mixed_fit import MixedFit
from natvi.models.mixed_notes import describe_data
from natvi.models.mixed_target import build_target
from natvi.models.priors import Prior, choose_prior
from natvi.models.response import encode_response, row_weights
from natvi.optimize.ascent import Packed, unpack
from natvi.precision import float64, to_host
from natvi.result import Result

METHODS = ("auto", "gva", "marginal")
STRUCTURES = {"gva": "arrow", "marginal": "draws"}


@dataclass(frozen=True, eq=False)
class MixedModel:
    """A mixed model with its data, ready to be fitted."""

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

    @property
    def constant(self) -> float:
        """The sum of the constants."""
        return 0.0 if self.constants is None else float(np.sum(self.constants))

    def fit(
        self,
        *,
        method: str = "auto",
        max_steps: int = 500,
        tolerance: float = 1e-9,
        state: LoopState | None = None,
        progress: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 2.0,
    ) -> Result:
        """Fit the model.

        Args:
            method: "gva", the Gaussian approximation with the arrow-shaped precision, by exact ascent; "marginal",
                which goes on from there: random effects integrated out, shared parameters drawn by importance
                sampling and the random effects exactly given them; "auto" takes "gva", checks it against the exact
                marginal, and goes on to "marginal" where it is off.
            max_steps: Iterations at most.
            tolerance: Relative rise of the bound at which the fit stops.
            state: `result.state` of an earlier fit of the same model, to go on from.
            progress: Show progress when the fit takes over a second.
            checkpoint: A file that keeps the state, so that a killed fit goes on where it was.
            checkpoint_seconds: The least time between two writes of the checkpoint.

        Returns:
            The result, converged or not: nothing is thrown away.
        """
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, not {method!r}.")
        if isinstance(max_steps, bool) or not isinstance(max_steps, int | np.integer) or max_steps < 1:
            raise ValueError(f"max_steps must be a whole number of at least 1; got {max_steps!r}.")
        if not isinstance(tolerance, float) or not 0 < tolerance < 1:
            raise ValueError(f"tolerance must be a number between 0 and 1, e.g. 1e-9; got {tolerance!r}.")
        if state is not None and not isinstance(state, LoopState):
            raise ValueError(f"state must be `result.state` of an earlier fit, not {type(state).__name__}.")
        watch = Stopwatch()
        with float64():
            target, start, place = build_target(
                self.design, self.y, self.family, self.prior, self.weight, self.constant
            )
            fitted = climb(
                target,
                start,
                max_steps=max_steps,
                tolerance=tolerance,
                state=state,
                progress=progress,
                checkpoint=checkpoint,
                checkpoint_seconds=checkpoint_seconds,
            )
            posterior, sds = to_host(_finish(fitted.state.ascent.x))
        model = self._fitted(_in_order(posterior, place), sds.local[..., place])
        stage = GaussianStage(target, place, posterior, model, fitted)
        chosen = choose(stage, method, progress)
        concerns = chosen.concerns
        return Result(
            model=chosen.model,
            method=chosen.method,
            structure=STRUCTURES[chosen.method],
            outcome=chosen.outcome,
            elbo=chosen.elbo,
            elbo_se=chosen.elbo_se,
            seconds=watch.read(),
            trace=chosen.trace,
            state=fitted.state,
            check=lazy_check(stage) if concerns is None else lambda: concerns,
            steps=chosen.steps,
        )

    def _fitted(self, posterior: ArrowPrecision, local_sds: np.ndarray) -> MixedFit:
        design = self.design
        assert design.group_labels is not None and design.group_codes is not None
        rows = (design.X, design.Z, design.offset, design.group_codes, self.y)
        return MixedFit(
            formula=self.formula,
            family=self.family,
            columns=design.columns,
            fixed_names=design.fixed_names,
            random_names=design.random_names,
            group_name=self.group_name,
            group_labels=design.group_labels,
            posterior=posterior,
            local_sds=local_sds,
            prior=self.prior.description,
            num_rows=len(self.y),
            notes=self.notes,
            correlated=design.correlated,
            rows=MixedRows(*rows, self.weight, self.trials, self.constants),
        )


def _in_order(posterior: ArrowPrecision, place: np.ndarray) -> ArrowPrecision:
    """Bring the groups back from the target's order to the data's."""
    mean, factor, inverse = posterior
    return ArrowPrecision(
        ArrowVector(mean.local[..., place], mean.shared),
        ArrowFactor(factor.local[..., place], factor.cross[..., place], factor.shared),
        inverse,
    )


@jax.jit
def _finish(x: Packed) -> tuple[ArrowPrecision, ArrowVector]:
    posterior = ArrowPrecision.from_natural(*unpack(x))
    return posterior, posterior.marginal_sds()


def glmm(
    formula: str,
    data: Any,
    *,
    family: str = "gaussian",
    link: str | None = None,
    prior: Any = "default",
    weights: Any = None,
    missing: str = "drop",
) -> MixedModel:
    """Describe a generalized linear mixed model; `.fit()` gives its posterior.

    Args:
        formula: For example `"y ~ base*trt + age + (1 | subject)"`; `||` in place of `|` makes random effects
            uncorrelated, `p(y, n)` left of `~` means y successes of n trials.
        data: A data frame, or anything pandas makes one of.
        family: "gaussian", "bernoulli", "binomial", "poisson", "negative_binomial" or "gamma". The expected response
            of a binomial model, in predictions too, is the proportion of successes.
        link: "logit", "probit" or "cloglog" for "bernoulli" and "binomial"; the other families have one link.
        prior: "default"; "paper" for N(0, 10^2) on every shared parameter; a number, the sd of every fixed effect; or a
            dict from fixed effects to an sd or a pair (mean, sd), and from "sd", "sd(x|g)", "corr" or the dispersion's
            name to a density, e.g. `{"x": 2.5, "sd": ("half_normal", 1.0), "corr": ("lkj", 2.0), "sigma": 3.0}`.
        weights: How often each row counts: the name of a column, or one number for each row.
        missing: "drop" leaves out rows with missing values and says how many; "error" refuses them.

    Returns:
        The model.

    Example:
        >>> import natvi
        >>> model = natvi.glmm("Reaction ~ Days + (Days | Subject)", natvi.data.load_sleepstudy())
        >>> model.design.random_names
        ('Intercept', 'Days')
    """
    chosen = find_family(family, link)
    parsed = parse_formula(formula)
    if parsed.group is None:
        raise ValueError(
            f"The formula {formula!r} has no random effects. Add them, e.g. '{formula} + (1 | group)'; for a model "
            "without groups use natvi.glm."
        )
    design = build_design(parsed, data, missing, weights)
    response = encode_response(design.response, design.response_name, family, design.trials)
    y, weight = response.values, row_weights(design.weights, response.trials)
    chosen_prior = choose_prior(
        prior,
        family,
        y,
        design.X,
        design.Z,
        chosen.has_dispersion,
        names=design.fixed_names,
        weights=weight,
        correlated=design.correlated,
        random_names=design.random_names,
        group=parsed.group,
    )
    notes = (*response.notes, *describe_data(design, y, parsed.group, chosen, response.trials))
    constants = response.log_choose
    if constants is not None and design.weights is not None:
        constants = constants * design.weights
    return MixedModel(formula, chosen, design, parsed.group, y, chosen_prior, notes, weight, constants, response.trials)
