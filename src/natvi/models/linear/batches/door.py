"""Generalized linear models from rows that do not fit into memory.

A first pass counts and checks the rows, and takes a random sample. The sample is fitted exactly; its Gaussian, with the
information scaled up to all rows, is the start of a stochastic fit on minibatches, whose coordinates are measured in
posterior sds of that start. Two last passes over all rows move the mean by one exact step and give the exact bound with
the expected gradient, which tells how far the fit is from its optimum.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family, find_streamed
from natvi.gaussian import CovarianceGaussian
from natvi.linalg import DenseFactor, DiagonalFactor
from natvi.models.linear.batches.ending import finish, judge_shift
from natvi.models.linear.batches.source import RowSource
from natvi.models.linear.batches.survey import Survey, prior_of_survey, survey_rows
from natvi.models.linear.methods import START_SD, build_target, column_scales, run_algorithm, unscaled
from natvi.models.linear.posterior import GlmFit
from natvi.models.regression.options import check_options, check_structure, choose_method
from natvi.models.regression.prior.choice import Prior
from natvi.result import Result
from natvi.run.batches.row_batches import check_batch_size
from natvi.run.clock import Stopwatch
from natvi.run.exact.rows import climb_rows
from natvi.target.design_rows import DesignRows
from natvi.x64 import float64

BATCH_ROWS = 1000
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
        optimizer: str = "snngm",
        order: int | str = 1,
        step_size: float | None = None,
        batch_size: int | None = None,
        buffer_rows: int | None = None,
        num_samples: int = 1,
        seed: int = 0,
        max_steps: int | None = None,
        state: Any = None,
        progress: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 2.0,
    ) -> Result:
        """Fit the Gaussian variational approximation by noisy steps on minibatches.

        Args:
            optimizer: "snngm", "nagm", "adam", "nadam", "pga", "vogn", in (mu, C); with independent
                coordinates "ivon" too.
            order: 1 for first derivatives of the log-density, 2 for second, "exact" for their expectations under the
                Gaussian, without draws.
            step_size: By default the optimizer's own.
            batch_size: Rows per step; by default 1,000, or all where there are fewer.
            buffer_rows: For an iterator: rows held for shuffling; by default ten batches.
            num_samples: Draws per step.
            seed: The same seed gives the same bits.
            max_steps: Steps at most; by default 100,000.
            state: `result.state` of an earlier fit of the same model, to go on from.
            progress: Show progress when the fit takes over a second.
            checkpoint: A file that keeps the state, so that a killed fit goes on where it was.
            checkpoint_seconds: The least time between two writes of the checkpoint.

        Returns:
            The result, converged or not. Its bound is exact, by two more passes over all rows; its trace is noisy.
        """
        noise: dict[str, Any] = {"order": order, "step_size": step_size, "num_samples": num_samples, "seed": seed}
        chosen = choose_method(("gva",), "gva", optimizer, noise, self.structure)
        if not chosen.is_noisy:
            raise ValueError("optimizer='ascent' needs all rows in memory; rows in batches take noisy steps: 'snngm'.")
        keeping: dict[str, Any] = {"state": state, "progress": progress, "checkpoint": checkpoint}
        keeping = check_options(max_steps, 100_000, 1e-8, **keeping, checkpoint_seconds=checkpoint_seconds)
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
        model = GlmFit(
            formula=None,
            family=self.family,
            names=self.source.names,
            mean=mean,
            factor=factor,
            prior=self.prior,
            num_rows=n,
            notes=(*self.source.notes, NOTE.format(len(self.survey.sample.y))),
            intercept=self.intercept,
            has_offset=self.source.has_offset,
        )
        return Result(
            model=model,
            method="gva",
            optimizer=chosen.optimizer,
            structure=self.structure,
            outcome=fitted.outcome,
            elbo=ending.elbo,
            elbo_se=0.0,
            seconds=watch.read(),
            trace=fitted.trace,
            state=fitted.state,
            check=lambda: judge_shift(ending.shift),
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
        num_rows: The number of rows; where it is given, another number is an error.
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
    survey = survey_rows(rows, chosen)
    rows.num_rows = survey.num_rows
    if not rows.names and not chosen.has_dispersion:
        raise ValueError("the model has no coefficients: X has no columns. Give some, or intercept=True.")
    chosen_prior = prior_of_survey(prior, chosen, survey, rows.names)
    rows.coordinates = chosen_prior.coordinates
    sample = survey.sample._replace(X=rows.coordinates.columns(survey.sample.X))
    return GlmBatchModel(chosen, rows, survey._replace(sample=sample), chosen_prior, structure, intercept)
