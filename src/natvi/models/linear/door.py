"""The doors to generalized linear models: a formula with a table, or arrays."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from natvi.families.table import Family, find_family, find_streamed
from natvi.formula.columns import ColumnRecipe
from natvi.formula.design import parse_formula
from natvi.formula.dot import expand_dot, refuse_dot
from natvi.formula.margins import products_of
from natvi.hosts.collect import count
from natvi.hosts.tables import is_spread
from natvi.models.linear.auto import go_on
from natvi.models.linear.check import check_fit
from natvi.models.linear.methods import fit_exactly, fit_stochastically
from natvi.models.linear.posterior import GlmFit
from natvi.models.linear.rows import read_matrix, rows_of_arrays, rows_of_design
from natvi.models.linear.spread.door import SpreadGlm, spread_glm
from natvi.models.regression.criticism import Drawn
from natvi.models.regression.family.formulas import build_with_parts, given_parts, refuse_parts
from natvi.models.regression.family.responses import complete_family
from natvi.models.regression.options import check_options, check_structure, choose_method
from natvi.models.regression.origin import Origin
from natvi.models.regression.prior.choice import Prior, choose_prior
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.prior.draws import draw_prior
from natvi.models.regression.prior.predictive import DrawsFromPrior
from natvi.models.regression.rows import Rows
from natvi.result import Result
from natvi.run import Fitted
from natvi.run.clock import Stopwatch
from natvi.run.settings import check_seed
from natvi.x64 import float64

METHODS = ("auto", "gva", "psis")


@dataclass(frozen=True, eq=False)
class GlmModel(DrawsFromPrior):
    """A generalized linear model with its data, ready to be fitted.

    Attributes:
        formula: The formula, or None for a model from arrays.
        family: The response distribution with its link.
        rows: Covariates, in the coordinates of the prior, and responses.
        names: Names of the coefficients.
        prior: Of the coefficients and the log dispersion.
        structure: "dense" or "diagonal", independent coordinates.
        notes: What was decided on the way, for the summary.
        columns: The recipe that rebuilds the covariates for new data; None for a model from arrays.
        intercept: Whether a column of ones was put before the columns of an array.
        origin: The data frame and the words at the door; None for a model from arrays.
    """

    formula: str | None
    family: Family
    rows: Rows
    names: tuple[str, ...]
    prior: Prior
    structure: str
    notes: tuple[str, ...]
    columns: ColumnRecipe | None = None
    intercept: bool = False
    origin: Origin | None = None

    def fit(
        self,
        *,
        method: str = "auto",
        optimizer: str | None = None,
        order: int = 1,
        step_size: float | None = None,
        batch_size: int | None = None,
        num_samples: int = 1,
        seed: int = 0,
        max_steps: int | None = None,
        tolerance: float = 1e-8,
        state: Any = None,
        progress: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 2.0,
    ) -> Result:
        """Fit the Gaussian variational approximation.

        Args:
            method: "gva", the Gaussian approximation; "psis" goes on to draws that are weighted towards the exact
                posterior; "auto" does so where the Gaussian is off (models with over a million numbers in X are checked
                on request only: `trust`).
            optimizer: "ascent", the default, maximises the exact bound without randomness; for noisy steps of "gva",
                algorithms of the paper in (mu, C), "snngm", "nagm", "adam", "nadam", "pga", "vogn", or with independent
                coordinates "ivon". The bound they report is nevertheless computed exactly, on all rows.
            order: For noisy steps: 1 for first derivatives of the log-density, 2 for second.
            step_size: For noisy steps; by default the optimizer's own.
            batch_size: For noisy steps: rows per step; by default all.
            num_samples: For noisy steps: draws per step.
            seed: For noisy steps: the same seed gives the same bits.
            max_steps: Steps at most; by default 500 exact or 100,000 noisy ones.
            tolerance: For "ascent": the fit stops when the bound will rise by no more than this, relative to its size.
            state: `result.state` of an earlier fit of the same model by the same method, to go on from.
            progress: Show progress when the fit takes over a second.
            checkpoint: A file that keeps the state, so that a killed fit goes on where it was.
            checkpoint_seconds: The least time between two writes of the checkpoint.

        Returns:
            The result, converged or not: nothing is thrown away.
        """
        noise: dict[str, Any] = {"order": order, "step_size": step_size, "num_samples": num_samples}
        chosen = choose_method(METHODS, method, optimizer, noise | {"batch_size": batch_size}, self.structure)
        seed = check_seed(seed)
        keeping = check_options(
            max_steps,
            100_000 if chosen.is_noisy else 500,
            tolerance,
            state=state,
            progress=progress,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
        )
        watch = Stopwatch()
        model = (self.rows, self.family, self.prior, self.structure)
        with float64():
            if chosen.is_noisy:
                self._check_noise(chosen.optimizer, batch_size)
                noise |= {"optimizer": chosen.optimizer, "batch_size": batch_size, "seed": seed}
                fitted = fit_stochastically(*model, **noise, **keeping)
            else:
                fitted = fit_exactly(*model, tolerance=tolerance, **keeping)
        result = self._result(fitted, chosen.optimizer, watch)
        return result if chosen.is_noisy else go_on(result, chosen.method)

    def _check_noise(self, optimizer: str, batch_size: int | None) -> None:
        """Noisy steps that take rows one by one need rows with one predictor."""
        if self.family.parts and (optimizer == "vogn" or batch_size is not None):
            what = "optimizer='vogn'" if optimizer == "vogn" else "batch_size"
            raise ValueError(
                f"{what} needs rows with one predictor, and formulas of the dispersion or of zeros give them several. "
                "Leave it out: the exact ascent, or noisy steps on all rows, take them."
            )

    @property
    def trials(self) -> np.ndarray | None:
        """Trials of every row of a binomial response, or None."""
        return self.rows.trials

    def prior_draws(self, num_draws: int, rng: np.random.Generator) -> Drawn:
        """Draw coefficients and dispersion from the prior."""
        return Drawn(self.family, self.rows.covariates, draw_prior(self.prior, num_draws, rng))

    def _result(self, fitted: Fitted, optimizer: str, watch: Stopwatch) -> Result:
        model = GlmFit(
            formula=self.formula,
            family=self.family,
            names=self.names,
            mean=fitted.gaussian.mean,
            factor=fitted.gaussian.factor[0],
            prior=self.prior,
            num_rows=len(self.rows.y),
            notes=self.notes,
            columns=self.columns,
            intercept=self.intercept,
            has_offset=self.rows.offset is not None,
            rows=self.rows,
            origin=self.origin,
        )
        return Result(
            model=model,
            method="gva",
            optimizer=optimizer,
            structure=self.structure,
            outcome=fitted.outcome,
            elbo=fitted.elbo,
            elbo_se=0.0,
            seconds=watch.read(),
            trace=fitted.trace,
            state=fitted.state,
            check=partial(check_fit, model),
            steps=fitted.steps,
        )


def glm(
    formula: str,
    data: Any,
    *,
    family: str = "gaussian",
    link: str | None = None,
    prior: Any = "default",
    structure: str = "auto",
    weights: Any = None,
    missing: str = "drop",
    dispersion: str | None = None,
    zero: str | None = None,
) -> GlmModel | SpreadGlm:
    """Describe a generalized linear model by a formula; `.fit()` gives its posterior.

    Args:
        formula: For example `"y ~ x*group + log(z) + offset(log(exposure))"`; `"p(y, n) ~ x"` for y successes of n
            trials, `"cens(time, status) ~ x"` for waiting times of which some were cut short.
        data: A data frame, or anything pandas makes one of; or a table in pieces (`natvi.hosts.parquet`, `arrays`,
            `pieces`). After `natvi.hosts.join()` it is this process's part of the rows.
        family: "gaussian", "bernoulli", "binomial", "poisson", "negative_binomial", "gamma", "ordinal", "student_t",
            "beta", "lognormal", "geometric", "exponential", "weibull", or one with too many zeros, such as
            "zero_inflated_poisson" and "hurdle_poisson".
        link: For "bernoulli" and "binomial": "logit" (the default), "probit" or "cloglog"; for "ordinal" "logit" or
            "probit"; for "gaussian" "identity" or "log".
        prior: "default", weakly informative and scaled to the data, so that units and zeros of the columns do not
            matter; "paper", N(0, 10²) whatever the data; a number, the sd of every coefficient; a dict from names of
            coefficients to an sd or a pair (mean, sd), on the scale of the data as they are, and from the dispersion's
            name to a density, e.g. `{"x": 2.5, "sigma": ("half_t", 3, 10)}`; or `model.prior` of another model with the
            same coefficients, whose numbers are taken over.
        structure: "auto" or "dense", the full covariance, or "diagonal", independent coefficients.
        weights: The name of a column or one number for each row: how often the row counts.
        missing: "drop" leaves out rows with missing values and says how many; "error" refuses them.
        dispersion: A formula of the dispersion, such as "~ x": its coefficients act on log(sigma), log(phi) or
            log(shape). By default one number for all rows.
        zero: The same of the probability of a zero, on the logit scale, for zero-inflated and hurdle families.

    Returns:
        The model.

    Example:
        >>> import natvi
        >>> model = natvi.glm("y ~ width", natvi.data.load_crabs(), family="bernoulli")
        >>> model.fit().trust
        'good'
    """
    if not isinstance(formula, str):
        raise ValueError(
            f"the formula must be a text such as 'y ~ x', not {type(formula).__name__}. For arrays use "
            "natvi.glm_arrays(X, y, family=...)."
        )
    chosen = find_family(family, link)
    spread = is_spread(data)
    formula = refuse_dot(formula) if spread else expand_dot(formula, data, weights)
    parsed = parse_formula(formula)
    if parsed.has_groups:
        raise ValueError(
            f"the formula {formula!r} has random effects. Use natvi.glmm for it, or leave out "
            f"(... | {parsed.group_columns[0]})."
        )
    given = given_parts(dispersion, zero)
    if spread:
        refuse_parts(given)
        chosen = find_streamed(family, link)
        return spread_glm(formula, data, chosen, prior, structure, weights, missing)
    design, chosen = build_with_parts(parsed, data, missing, weights, chosen, given)
    rows, notes = rows_of_design(design, chosen.name)
    chosen = complete_family(chosen, rows.y, design.response_name)
    model = _model(formula, chosen, rows, design.fixed_names, prior, structure, notes, columns=design.columns)
    words = {"prior": prior, "structure": structure, "weights": weights, "missing": missing} | given
    return replace(model, origin=Origin.of(formula, data, design.rows, family=family, link=link, **words))


def glm_arrays(
    X: Any,
    y: Any,
    *,
    family: str = "gaussian",
    link: str | None = None,
    names: Any = None,
    intercept: bool = False,
    offset: Any = None,
    weights: Any = None,
    trials: Any = None,
    prior: Any = "default",
    structure: str = "auto",
) -> GlmModel:
    """Describe a generalized linear model by arrays; `.fit()` gives its posterior.

    No intercept is added unless `intercept=True`: include a column of ones, or ask for it.

    Args:
        X: Covariates `(n, p)`, an array or a data frame of numbers.
        y: The response `(n,)`; with `trials` the successes.
        family: "gaussian", "bernoulli", "binomial", "poisson", "negative_binomial", "gamma", "ordinal", "student_t",
            "beta", "lognormal", "geometric", "exponential", "weibull", or one with too many zeros, such as
            "zero_inflated_poisson" and "hurdle_poisson".
        link: For "bernoulli" and "binomial": "logit" (the default), "probit" or "cloglog"; for "ordinal" "logit" or
            "probit"; for "gaussian" "identity" or "log".
        names: Names of the columns; by default those of a data frame, else x0, x1, ...
        intercept: Whether to put a column of ones, called Intercept, before the others.
        offset: A known part of the linear predictor `(n,)`.
        weights: How often each row counts `(n,)`.
        trials: Trials of each row `(n,)`, for family="binomial".
        prior: As for `natvi.glm`.
        structure: "auto" or "dense", the full covariance, or "diagonal", independent coefficients.

    Returns:
        The model.

    Example:
        >>> import natvi
        >>> import numpy as np
        >>> X = np.column_stack([np.ones(6), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]])
        >>> result = natvi.glm_arrays(X, [0, 2, 1, 4, 6, 11], family="poisson", names=("one", "x")).fit()
        >>> bool(result.summary().loc["x", "mean"] > 0)
        True
    """
    chosen = find_family(family, link)
    if count() > 1:
        raise ValueError("arrays that lie in several processes are fitted by natvi.glm_batches((X, y), family=...).")
    matrix, columns = read_matrix(X, names)
    if intercept:
        if "Intercept" in columns:
            raise ValueError("X has a column called Intercept already: leave intercept=True out, or rename the column.")
        matrix, columns = np.column_stack([np.ones(len(matrix)), matrix]), ("Intercept", *columns)
    rows, notes = rows_of_arrays(matrix, y, chosen.name, offset, weights, trials)
    chosen = complete_family(chosen, rows.y, "y")
    return _model(None, chosen, rows, columns, prior, structure, notes, intercept=intercept)


def _model(
    formula: str | None,
    family: Family,
    rows: Rows,
    names: tuple[str, ...],
    prior: Any,
    structure: str,
    notes: tuple[str, ...],
    *,
    columns: ColumnRecipe | None = None,
    intercept: bool = False,
) -> GlmModel:
    structure = check_structure(structure)
    n, p = rows.X.shape
    if p == 0 and not family.has_dispersion:
        raise ValueError("the model has no coefficients. Add an intercept or a covariate, e.g. 'y ~ 1'.")
    if n == 1:
        notes = (*notes, "a single row: the prior decides what it leaves open")
    elif p > n:
        notes = (*notes, f"more coefficients ({p:,}) than rows ({n:,}): the prior decides what the data leave open")
    products = None if columns is None else products_of(columns.fixed)
    data = PriorData(rows.y, rows.X, np.zeros((n, 0)), rows.offset, rows.weight, products)
    chosen = choose_prior(prior, family, data, names=names)
    notes = (*notes, chosen.note) if chosen.note else notes
    rows = rows._replace(X=chosen.coordinates.columns(rows.X))
    return GlmModel(formula, family, rows, names, chosen, structure, notes, columns, intercept)
