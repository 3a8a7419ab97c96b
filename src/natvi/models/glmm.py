"""The formula door to mixed models."""

import difflib
from dataclasses import dataclass
from functools import partial
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
from natvi.models.likelihoods import FAMILIES, Family
from natvi.models.mixed_check import check_fit
from natvi.models.mixed_fit import MixedFit
from natvi.models.mixed_target import build_target
from natvi.models.priors import Prior, choose_prior
from natvi.models.response import encode_response
from natvi.optimize.ascent import Packed, unpack
from natvi.precision import float64, to_host
from natvi.result import Result

METHODS = ("auto", "gva")


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
        """Fit the Gaussian variational approximation by exact natural-parameter ascent.

        Args:
            method: "gva", the Gaussian approximation with the arrow-shaped precision; "auto" is the same for now.
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
            target, start, place = build_target(self.design, self.y, self.family, self.prior)
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
        return Result(
            model=model,
            method="gva",
            structure="arrow",
            outcome=fitted.outcome,
            elbo=float(fitted.state.ascent.elbo),
            elbo_se=0.0,
            seconds=watch.read(),
            trace=fitted.trace,
            state=fitted.state,
            check=partial(check_fit, target, posterior, model),
        )

    def _fitted(self, posterior: ArrowPrecision, local_sds: np.ndarray) -> MixedFit:
        design = self.design
        assert design.group_labels is not None
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
    formula: str, data: Any, *, family: str = "gaussian", prior: str = "default", missing: str = "drop"
) -> MixedModel:
    """Describe a generalized linear mixed model; `.fit()` gives its posterior.

    Args:
        formula: For example `"y ~ base*trt + age + (1 | subject)"`.
        data: A data frame, or anything pandas makes one of.
        family: "gaussian", "poisson" or "bernoulli".
        prior: "default", or "paper" for N(0, 10^2) on every shared parameter.
        missing: "drop" leaves out rows with missing values and says how many; "error" refuses them.

    Returns:
        The model.

    Example:
        >>> import natvi
        >>> model = natvi.glmm("Reaction ~ Days + (Days | Subject)", natvi.data.load_sleepstudy())
        >>> model.design.random_names
        ('Intercept', 'Days')
    """
    chosen = _family(family)
    parsed = parse_formula(formula)
    if parsed.group is None:
        raise ValueError(
            f"The formula {formula!r} has no random effects. Add them, e.g. '{formula} + (1 | group)'; for a model "
            "without groups use a generalized linear model."
        )
    design = build_design(parsed, data, missing)
    response = encode_response(design.response, design.response_name, family)
    chosen_prior = choose_prior(prior, family, response.values, design.X, design.Z, chosen.has_dispersion)
    notes = (*response.notes, *_notes(design, parsed.group, chosen))
    return MixedModel(formula, chosen, design, parsed.group, response.values, chosen_prior, notes)


def _family(name: str) -> Family:
    if name in FAMILIES:
        return FAMILIES[name]
    near = difflib.get_close_matches(str(name), FAMILIES, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"Unknown family {name!r}.{hint} Known: {', '.join(FAMILIES)}.")


def _notes(design: Design, group: str, family: Family) -> tuple[str, ...]:
    notes = []
    if design.num_missing:
        total = design.num_missing + len(design.X)
        notes.append(
            f"{design.num_missing:,} of {total:,} rows left out: missing values (missing='error' refuses them)"
        )
    sizes = design.group_sizes
    assert sizes is not None
    single = int((sizes == 1).sum())
    if single == len(sizes):
        if family.name == "gaussian":
            raise ValueError(
                f"Every group of {group!r} has a single row: its random effects cannot be told from the "
                "residual. Check the grouping column, or leave the random effects out."
            )
        notes.append(f"every group of {group} has a single row: the variance is poorly determined")
    elif single:
        notes.append(f"{single:,} of {len(sizes):,} groups have a single row")
    return tuple(notes)
