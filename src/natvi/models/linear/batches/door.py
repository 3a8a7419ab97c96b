"""Generalized linear models from rows that do not fit into memory.

A first pass counts and checks the rows, and takes a random sample. The sample is fitted exactly; its Gaussian, with the
information scaled up to all rows, is where a fit starts. Exact steps, `optimizer="ascent"`, are a pass over all rows
each, of all processes (`natvi.models.linear.spread.exact`). Noisy steps look at minibatches, in coordinates measured in
posterior sds of that start; two last passes over all rows then move the mean by one exact step and give the exact bound
with the expected gradient, which tells how far the fit is from its optimum.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family, find_streamed
from natvi.formula.margins import plain_products
from natvi.gaussian import CovarianceGaussian
from natvi.hosts.collect import collect, count
from natvi.linalg import DenseFactor, DiagonalFactor
from natvi.models.linear.batches.ending import finish, judge_shift
from natvi.models.linear.batches.source import RowSource
from natvi.models.linear.methods import START_SD, build_target, column_scales, run_algorithm, unscaled
from natvi.models.linear.posterior import GlmFit
from natvi.models.linear.spread.exact import RowsOfPasses, fit_by_passes
from natvi.models.regression.options import check_options, check_structure, choose_method
from natvi.models.regression.prior.choice import Prior, choose_prior
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.spread.moments import standard_form
from natvi.models.regression.spread.survey import Survey, response_of, survey_rows
from natvi.result import Result
from natvi.run import Fitted
from natvi.run.batches.row_batches import check_batch_size
from natvi.run.clock import Stopwatch
from natvi.run.exact.rows import climb_rows
from natvi.target.design_rows import DesignRows
from natvi.x64 import float64

BATCH_ROWS = 1000
NOT_KEPT = "rows read in pieces and not kept"
NOTE = "rows read in pieces and not kept: the start is an exact fit to {:,} of them"


@dataclass(frozen=True, eq=False)
class GlmBatchModel:
    """A generalized linear model whose rows are read in pieces, ready to be fitted.

    Attributes:
        family: The response distribution with its link.
        source: Where the rows come from.
        survey: What the first pass over them found.
        prior: Of the coefficients and the log dispersion.
        structure: "dense" or "diagonal".
        intercept: Whether a column of ones was put before the columns of X.
    """

    family: Family
    source: RowSource
    survey: Survey
    prior: Prior
    structure: str
    intercept: bool

    def fit(
        self,
        *,
        optimizer: str | None = None,
        order: int | str = 1,
        step_size: float | None = None,
        batch_size: int | None = None,
        buffer_rows: int | None = None,
        num_samples: int = 1,
        seed: int = 0,
        max_steps: int | None = None,
        tolerance: float = 1e-8,
        state: Any = None,
        progress: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 2.0,
    ) -> Result:
        """Fit the Gaussian variational approximation by noisy steps on minibatches, or by exact steps over all rows.

        Args:
            optimizer: "snngm", "nagm", "adam", "nadam", "pga", "vogn", in (mu, C); with independent
                coordinates "ivon" too. "ascent" takes exact steps, each a pass over all rows: few, and without noise.
                By default "snngm", where rows lie in many processes "ascent".
            order: 1 for first derivatives of the log-density, 2 for second, "exact" for their expectations under the
                Gaussian, without draws.
            step_size: By default the optimizer's own.
            batch_size: Rows per step; by default 1,000, or all where there are fewer.
            buffer_rows: For an iterator: rows held for shuffling; by default ten batches.
            num_samples: Draws per step.
            seed: The same seed gives the same bits.
            max_steps: Steps at most; by default 100,000 noisy or 500 exact ones.
            tolerance: For "ascent": the fit stops when the bound will rise by no more than this, relative to its size.
            state: `result.state` of an earlier fit of the same model, to go on from.
            progress: Show progress when the fit takes over a second.
            checkpoint: A file that keeps the state, so that a killed fit goes on where it was.
            checkpoint_seconds: The least time between two writes of the checkpoint.

        Returns:
            The result, converged or not. Its bound is exact, by two more passes over all rows; its trace is noisy.
        """
        if optimizer is None:
            optimizer = "snngm" if count() == 1 else "ascent"
        noise: dict[str, Any] = {"order": order, "step_size": step_size, "num_samples": num_samples, "seed": seed}
        chosen = choose_method(("gva",), "gva", optimizer, noise, self.structure)
        keeping: dict[str, Any] = {"state": state, "progress": progress, "checkpoint": checkpoint}
        keeping |= {"checkpoint_seconds": checkpoint_seconds}
        if not chosen.is_noisy:
            return self._fit_exactly(check_options(max_steps, 500, tolerance, **keeping) | {"tolerance": tolerance})
        if count() > 1:
            raise ValueError(
                f"optimizer={optimizer!r} takes noisy steps, and rows in {count()} processes are fitted by exact ones. "
                "Leave it out, or give optimizer='ascent'."
            )
        keeping = check_options(max_steps, 100_000, 1e-8, **keeping)
        n = self.survey.num_rows
        size = check_batch_size(min(BATCH_ROWS, n) if batch_size is None else batch_size, n)
        watch = Stopwatch()
        with float64():
            start, scales = self._start()
            batches = self.source.batches(scales, size, buffer_rows, seed)
            target = self._target(scales)
            fitted = run_algorithm(target, start, batches, optimizer=chosen.optimizer, **noise, **keeping)
            ending = finish(self.source, target, scales, jax.tree.map(jnp.asarray, fitted.gaussian))
            mean, factor = unscaled(ending.gaussian, scales)
        note = NOTE.format(len(self.survey.sample.y))
        fitted = fitted._replace(elbo=ending.elbo)
        return self._result(fitted, mean, factor, chosen.optimizer, watch, note, ending.shift)

    def _fit_exactly(self, options: dict[str, Any]) -> Result:
        watch = Stopwatch()
        # the source gives its rows in the coordinates of the prior
        rows = RowsOfPasses(self.source.read, self.survey, lambda X: X, keep=False, words=self.prior.description)
        with float64():
            fitted = fit_by_passes(rows, self.family, self.prior, self.structure, **options)
        mean, factor = fitted.gaussian.mean, fitted.gaussian.factor[0]
        # the first numbers of the residual are the step of the mean in posterior sds
        shift = np.asarray(fitted.state.ascent.residual.shared)[: len(mean)]
        return self._result(fitted, mean, factor, "ascent", watch, NOT_KEPT, shift)

    def _result(
        self,
        fitted: Fitted,
        mean: np.ndarray,
        factor: np.ndarray,
        optimizer: str,
        watch: Stopwatch,
        note: str,
        shift: np.ndarray,
    ) -> Result:
        model = GlmFit(
            formula=None,
            family=self.family,
            names=self.source.names,
            mean=mean,
            factor=factor,
            prior=self.prior,
            num_rows=self.survey.num_rows,
            notes=(*self.source.notes, note),
            intercept=self.intercept,
            has_offset=self.source.has_offset,
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
            check=lambda: judge_shift(shift),
            steps=fitted.steps,
        )

    def _start(self) -> tuple[CovarianceGaussian, np.ndarray]:
        """Return where to start, and the scales that bring the sds of its coefficients near `START_SD`."""
        rows, prior = self.survey.sample, self.prior
        own = column_scales(rows.X)
        mean, factor = unscaled(climb_rows(build_target(rows, self.family, prior, own), self.structure).gaussian, own)
        if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(factor))):
            mean, factor = prior.mean, START_SD * (np.eye if self.structure == "dense" else np.ones)(len(prior.mean))
        factor = grown(factor, prior.sd, self.survey.num_rows / len(rows.y))
        sds = np.abs(factor) if factor.ndim == 1 else np.sqrt(np.sum(factor**2, axis=1))
        scales = 2.0 ** np.round(np.log2(START_SD / sds[: rows.X.shape[1]]))
        whole = np.append(scales, np.ones(len(mean) - len(scales)))
        if factor.ndim == 1:
            inner = DiagonalFactor(jnp.asarray(whole * factor))
        else:
            inner = DenseFactor(jnp.asarray(whole[:, None] * factor))
        return CovarianceGaussian(jnp.asarray(whole * mean), inner), scales

    def _target(self, scales: np.ndarray) -> DesignRows:
        """Return the target of all rows, with the sample as the rows in use."""
        target = build_target(self.survey.sample, self.family, self.prior, scales)
        return DesignRows(target.rows, target.prior, self.family, self.survey.num_rows, self.survey.constant)


def grown(factor: np.ndarray, prior_sd: np.ndarray, times: float) -> np.ndarray:
    """Return the factor of the covariance once the data count `times` as often: S0 + times (S - S0), S0 the prior's.

    Example:
        >>> grown(np.array([0.5, 2.0]), np.array([1e9, 2.0]), 4.0).tolist()
        [0.25, 2.0]
    """
    prior = prior_sd**-2.0
    if factor.ndim == 1:
        return 1.0 / np.sqrt(prior + times * np.maximum(factor**-2.0 - prior, 0.0))
    inverse = np.linalg.inv(factor)
    precision = inverse.T @ inverse
    try:
        # S = U U' with U upper triangular, so that C = U^-T is lower triangular
        whole = np.diag(prior) + times * (precision - np.diag(prior))
        root = np.linalg.cholesky(whole[::-1, ::-1])[::-1, ::-1]
    except np.linalg.LinAlgError:
        return factor / np.sqrt(times)
    return np.linalg.inv(root).T


def _prior(prior: Any, family: Family, survey: Survey, names: tuple[str, ...]) -> Prior:
    """Return the prior that all rows in memory would have had; yes and no with an offset are taken from the sample."""
    rows = survey.sample

    def look(K: np.ndarray, chosen: np.ndarray) -> Any:
        raise AssertionError("columns that are numbers by themselves are no products")

    standard = standard_form(survey.X, plain_products(len(names)), True, look)
    response, none = response_of(survey, family, standard.has_constant), np.zeros((len(rows.y), 0))
    data = PriorData(rows.y, rows.X, none, rows.offset, rows.weight, standard=standard, response=response)
    return choose_prior(prior, family, data, names=names)


def glm_batches(
    source: Any,
    num_rows: int | None = None,
    *,
    family: str = "gaussian",
    link: str | None = None,
    names: Any = None,
    intercept: bool = False,
    prior: Any = "default",
    structure: str = "auto",
) -> GlmBatchModel:
    """Describe a generalized linear model by rows that do not fit into memory; `.fit()` gives its posterior.

    The rows are read once here, to count and check them and to scale the prior; a fit reads them many times.

    Args:
        source: Arrays, which may be memory-mapped files: a pair (X, y), or a dict with `X` `(n, p)`, `y` `(n,)` and
            perhaps `offset`, `weights` and `trials`. Or a function of the epoch's number that returns a fresh iterator
            over such pieces, of any lengths: the same rows in every epoch.
        num_rows: The number of rows, of this process where there are several; another number is then an error.
        family: As for `natvi.glm`.
        link: As for `natvi.glm`.
        names: Names of the columns; by default x0, x1, ...
        intercept: Whether to put a column of ones, called Intercept, before the others.
        prior: As for `natvi.glm`.
        structure: "auto" or "dense", the full covariance, or "diagonal", independent coefficients.

    Returns:
        The model.

    Example:
        >>> import natvi
        >>> import numpy as np
        >>> def pieces(epoch):
        ...     for k in range(8):
        ...         rng = np.random.default_rng(k)
        ...         X = rng.normal(size=(50, 2))
        ...         yield X, rng.poisson(np.exp(X @ [0.5, -0.5]))
        >>> model = natvi.glm_batches(pieces, family="poisson")
        >>> model.survey.num_rows
        400
    """
    chosen = find_streamed(family, link)
    structure = check_structure(structure)
    rows = RowSource(source, num_rows, chosen.name, names, intercept)
    known = [size for size in collect(num_rows) if size is not None]
    survey = survey_rows(rows.read, chosen, tuple(known) if len(known) == count() else None)
    rows.num_rows = survey.own_rows
    if not rows.names and not chosen.has_dispersion:
        raise ValueError("the model has no coefficients: X has no columns. Give some, or intercept=True.")
    chosen_prior = _prior(prior, chosen, survey, rows.names)
    rows.coordinates = chosen_prior.coordinates
    sample = survey.sample._replace(X=rows.coordinates.columns(survey.sample.X))
    return GlmBatchModel(chosen, rows, survey._replace(sample=sample), chosen_prior, structure, intercept)
