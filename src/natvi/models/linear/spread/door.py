"""A generalized linear model whose table is read in pieces, or lies in many processes, behind the usual door."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from natvi.families.table import Family
from natvi.formula.design import parse_formula
from natvi.hosts.joining import require_agreement
from natvi.hosts.tables import as_table
from natvi.judge.trust import Trust
from natvi.models.linear.batches.ending import judge_shift
from natvi.models.linear.posterior import GlmFit
from natvi.models.linear.spread.exact import RowsOfPasses, fit_by_passes
from natvi.models.regression.options import check_options, check_structure, choose_method
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.spread.levels import Common, find_common
from natvi.models.regression.spread.rows import TableRows, notes_of, prior_of
from natvi.models.regression.spread.survey import Survey, survey_rows
from natvi.result import Result
from natvi.run import Fitted
from natvi.run.clock import Stopwatch
from natvi.x64 import float64

METHODS = ("auto", "gva")


@dataclass(frozen=True, eq=False)
class SpreadGlm:
    """A generalized linear model whose rows are read in pieces, by this process or by many, ready to be fitted."""

    formula: str
    family: Family
    common: Common
    source: TableRows
    survey: Survey
    prior: Prior
    structure: str
    words: str

    def fit(
        self,
        *,
        method: str = "auto",
        optimizer: str | None = None,
        max_steps: int | None = None,
        tolerance: float = 1e-8,
        seed: int = 0,
        state: Any = None,
        progress: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 2.0,
    ) -> Result:
        """Fit the Gaussian variational approximation by exact steps, one pass over all rows each.

        Args:
            method: "gva", which is what "auto" takes here: whether the posterior is Gaussian is not checked.
            optimizer: "ascent"; noisy steps on rows in pieces are for `natvi.glm_batches`.
            max_steps: Passes at most; by default 500.
            tolerance: The fit stops when the bound will rise by no more than this, relative to its size.
            seed: Not used: there is no randomness.
            state: `result.state` of an earlier fit of the same model, to go on from.
            progress: Show progress when the fit takes over a second.
            checkpoint: A file that keeps the state, so that a killed fit goes on where it was, on as many processes or
                on another number.
            checkpoint_seconds: The least time between two writes of the checkpoint.

        Returns:
            The result, the same in every process.
        """
        chosen = choose_method(METHODS, method, optimizer, {}, self.structure)
        if chosen.is_noisy:
            raise ValueError(
                f"optimizer={optimizer!r} takes noisy steps, and rows in pieces behind a formula are fitted by exact "
                "ones. Leave it out, or use natvi.glm_batches."
            )
        keeping = {"state": state, "progress": progress, "checkpoint": checkpoint}
        keeping = check_options(max_steps, 500, tolerance, **keeping, checkpoint_seconds=checkpoint_seconds)
        require_agreement({"max_steps and tolerance": (keeping["max_steps"], tolerance)}, "they would stop apart")
        watch = Stopwatch()
        rows = RowsOfPasses(
            self.source.rows, self.survey, self.prior.coordinates.columns, keep=self.source.in_memory, words=self.words
        )
        with float64():
            fitted = fit_by_passes(rows, self.family, self.prior, self.structure, tolerance=tolerance, **keeping)
        return self._result(fitted, watch)

    def _result(self, fitted: Fitted, watch: Stopwatch) -> Result:
        model = GlmFit(
            formula=self.formula,
            family=self.family,
            names=self.common.design.fixed_names,
            mean=fitted.gaussian.mean,
            factor=fitted.gaussian.factor[0],
            prior=self.prior,
            num_rows=self.survey.num_rows,
            notes=notes_of(self.common, self.family),
            columns=self.common.recipe,
            has_offset=self.survey.sample.offset is not None,
        )
        return Result(
            model=model,
            method="gva",
            optimizer="ascent",
            structure=self.structure,
            outcome=fitted.outcome,
            elbo=fitted.elbo,
            elbo_se=0.0,
            seconds=watch.read(),
            trace=fitted.trace,
            state=fitted.state,
            check=partial(_judge, fitted, len(model.mean)),
            steps=fitted.steps,
        )


def _judge(fitted: Fitted, d: int) -> tuple[Trust, ...]:
    # the first d numbers of the residual are the step of the mean in posterior sds
    return judge_shift(np.asarray(fitted.state.ascent.residual.shared)[:d])


def spread_glm(
    formula: str, data: Any, family: Family, prior: Any, structure: str, weights: Any, missing: str
) -> SpreadGlm:
    """Survey the rows of all processes, and describe the model; arguments as for `natvi.glm`."""
    words = {"formula": formula, "family": (family.name, family.link), "weights": repr(weights), "missing": missing}
    words |= {"prior": repr(prior), "structure": structure}
    require_agreement(words, "they would not fit the same model")
    parsed = parse_formula(formula)
    table = as_table(data)
    structure = check_structure(structure)
    common = find_common(parsed, table, weights, missing)
    if not common.design.fixed_names and not family.has_dispersion:
        raise ValueError("the model has no coefficients. Add an intercept or a covariate, e.g. 'y ~ 1'.")
    source = TableRows(common, table, family)
    survey = survey_rows(source.rows, family, common.rows)
    chosen = prior_of(prior, family, common, source, survey)
    return SpreadGlm(formula, family, common, source, survey, chosen, structure, repr(words))
