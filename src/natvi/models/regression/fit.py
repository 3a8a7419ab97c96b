"""What the fits of all regressions have in common: rows, and what is said by holding the fit against them."""

from abc import ABC, abstractmethod
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

from natvi.families.ordinal import category_probabilities
from natvi.families.table import Family
from natvi.formula.columns import ColumnRecipe, as_frame
from natvi.formula.design import Formula, build_design, parse_formula
from natvi.formula.raw_columns import listing
from natvi.judge.predictive import UNCHECKED, ModelCheck, check_model
from natvi.judge.replicate import CHECK_DRAWS, even_rows
from natvi.models.regression import criticism
from natvi.models.regression.coordinates import Coordinates
from natvi.models.regression.criticism import Drawn, Loo, Residuals
from natvi.models.regression.origin import Origin
from natvi.models.regression.predict import (
    CHUNK_ROWS,
    MEAN_DRAWS,
    PROBABILITIES,
    check_word,
    drawn_values,
    kinds_of_prediction,
)
from natvi.models.regression.prior.check import prior_concerns
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.log_density import log_prior
from natvi.models.regression.questions import contrasts, leave_groups, row_answers
from natvi.models.regression.questions.averages import Setting
from natvi.models.regression.response import encode_response
from natvi.models.regression.rows import Covariates, Rows, gather
from natvi.models.regression.tables import interval_table
from natvi.models.regression.words import Description, describe
from natvi.x64 import float64


class RegressionFit(ABC):
    """A fitted regression; `rows` refers to the training data, and a fit that was loaded from a file has none."""

    formula: str | None
    family: Family
    prior: Prior
    columns: ColumnRecipe | None
    rows: Rows | None
    origin: Origin | None
    num_rows: int

    # --- what a model adds -----------------------------------------------------------------------------------

    @abstractmethod
    def covariates_of(self, data: Any) -> Covariates:
        """Return new rows in the coordinates of the fit, without their responses."""

    @abstractmethod
    def covariates_for(self, data: Any, groups: str) -> Covariates:
        """Return rows whose groups are "known", one "new" group, or none ("population"); by default training rows."""

    @abstractmethod
    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return predictions for new rows, or for the training rows."""

    @abstractmethod
    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return tidy tables of parameters by their role."""

    @abstractmethod
    def shared_names(self) -> list[str]:
        """Return a readable name of every shared coordinate: coefficients, dispersion, and what there is more."""

    @abstractmethod
    def shared_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the shared coordinates."""

    @abstractmethod
    def draws(self, num_samples: int, seed: int) -> np.ndarray:
        """Draw the shared coordinates, those of `sample`."""

    @abstractmethod
    def draws_for(self, covariates: Covariates, num_draws: int, seed: int) -> Drawn:
        """Draw the parameters that the predictors of some rows need."""

    @abstractmethod
    def fitted_values(self, drawn: Drawn) -> np.ndarray:
        """Return the expected response of every row."""

    def log_ratios(self, rows: Rows, shared: np.ndarray) -> np.ndarray | None:
        """Return log p(y, theta) - log q(theta) of draws, or None where they count as draws of the posterior."""
        return None

    def block_values(self, rows: Rows, drawn: Drawn, codes: np.ndarray, num_blocks: int) -> np.ndarray:
        """Return the log-likelihood of every block of rows under every draw `(s, b)`."""
        return leave_groups.sum_blocks(criticism.log_likelihoods(drawn, rows), codes, num_blocks)

    @property
    def has_groups(self) -> bool:
        """Whether rows have effects of groups."""
        return False

    @property
    def loo_cause(self) -> str:
        """Why leaving a row out may change much."""
        return ""

    # --- rows ------------------------------------------------------------------------------------------------

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of the fit and of its rows; tables and draws by name are in the user's."""
        return self.prior.coordinates

    def training_rows(self) -> Rows:
        """Return the training rows, or say that they are not at hand."""
        if self.rows is None:
            needed = "a data frame with the columns of the formula" if self.columns else "{'X': X, 'y': y}"
            raise ValueError(
                "a fit that was loaded from a file, or made from batches, does not hold its training data. Pass them: "
                f"{needed}, as data= (in predict as new_data)."
            )
        return self.rows

    def rows_of(self, data: Any) -> Rows:
        """Return new rows with their responses, weights and trials; without data the training rows."""
        if data is None:
            return self.training_rows()
        assert self.formula is not None and self.columns is not None
        frame = as_frame(data)
        covariates = self.covariates_of(frame)
        left = parse_formula(self.formula).response  # refuses all but known functions
        design = build_design(Formula(f"{left} ~ 1", left, "1", "0", None), frame, "error")
        response = encode_response(
            design.response, design.response_name, self.family.name, design.trials, may_be_equal=True
        )
        return gather(covariates, response, self.columns.apply_weights(frame))

    def _trials_of(self, data: Any) -> np.ndarray | None:
        if self.family.name != "binomial":
            return None
        if data is None or self.columns is None:
            return self.rows_of(data).trials
        return self.columns.apply_trials(data)

    # --- the fit against data --------------------------------------------------------------------------------

    def observed(self, data: Any = None) -> np.ndarray:
        """Return the responses; of trials the successes."""
        return self.rows_of(data).responses()

    def posterior_predictive(self, num_draws: int, seed: int, data: Any = None) -> np.ndarray:
        """Draw replicated responses `(num_draws, n)`."""
        covariates = self.training_rows().covariates if data is None else self.covariates_of(data)
        criticism.check_size(num_draws, covariates.num_rows)
        return criticism.replicate_responses(self.draws_for(covariates, num_draws, seed), self._trials_of(data), seed)

    def log_likelihood(self, num_draws: int, seed: int, data: Any = None) -> np.ndarray:
        """Return the log-likelihood of every row under every draw, `(num_draws, n)`."""
        rows = self.rows_of(data)
        criticism.check_size(num_draws, len(rows.y))
        return criticism.log_likelihoods(self.draws_for(rows.covariates, num_draws, seed), rows)

    def loo(self, num_draws: int, seed: int, data: Any = None) -> Loo:
        """Return leave-one-out cross-validation."""
        rows = self.rows_of(data)
        drawn = self.draws_for(rows.covariates, num_draws, seed)
        return criticism.leave_one_out(drawn, rows, self.log_ratios(rows, drawn.shared), self.loo_cause)

    def residuals(self, seed: int, data: Any = None) -> Residuals:
        """Return fitted values with Pearson and quantile residuals, of very many rows an even selection."""
        rows = self.rows_of(data)
        if (at := even_rows(len(rows.y))) is not None:
            rows = rows.take(at)
        drawn = self.draws_for(rows.covariates, criticism.RESIDUAL_DRAWS, seed)
        return criticism.find_residuals(drawn, rows, self.fitted_values(drawn), self.shared_moments()[0], seed)

    def check_model(self) -> ModelCheck | None:
        """Return how well the model describes its data; None where they are not at hand."""
        if self.rows is None:
            return None
        at = even_rows(len(self.rows.y))
        rows = self.rows if at is None else self.rows.take(at)
        cut = criticism.rows_are_cut(self.family, rows)
        if cut is not None and cut.any():
            words = f"{cut.mean():.0%} of the times were cut short, and when they would have ended is not known"
            return ModelCheck(UNCHECKED, (words,))
        drawn = self.draws_for(rows.covariates, CHECK_DRAWS, 0)
        return check_model(criticism.replicate_rows(drawn, rows, 0), self.family.name)

    def check_prior(self) -> tuple[str, ...] | None:
        """Return in which ways the prior decides, or None where it is not known."""
        mean, covariance = self.shared_moments()
        if len(self.prior.mean) != len(mean):
            return None
        return prior_concerns(self.prior, self.shared_names(), mean, covariance)

    def log_prior(self, num_draws: int, seed: int) -> np.ndarray:
        """Return the log prior density of the draws of `sample`, in the coordinates of the fit."""
        return log_prior(self.prior, self.draws(num_draws, seed))

    def is_discrete(self) -> bool:
        """Whether responses are counts or 0 and 1."""
        return self.family.discrete

    # --- questions -------------------------------------------------------------------------------------------

    def means(self, variable: str, at: Any, by: Any, prob: float, setting: dict[str, Any]) -> pd.DataFrame:
        """Return the average expectation of the rows had they held each of some values."""
        return contrasts.marginal_means(self, variable, at, by, prob, Setting(**setting))

    def compare(
        self, variable: str, levels: Any, pairs: str, by: Any, measure: str, prob: float, setting: dict[str, Any]
    ) -> pd.DataFrame:
        """Return differences or ratios of these averages."""
        return contrasts.comparisons(self, variable, levels, pairs, by, measure, prob, Setting(**setting))

    def slopes(self, variable: str, by: Any, prob: float, setting: dict[str, Any]) -> pd.DataFrame:
        """Return the average derivative in a number."""
        return contrasts.average_slopes(self, variable, by, prob, Setting(**setting))

    def description(self) -> Description:
        """Return the model in words, in equations, and as the call that makes it."""
        names = tuple(map(str, self.tables(0.5)["coefficients"].index))
        given = {} if self.origin is None else self.origin.given()
        return describe(self.formula, self.family, names, self.num_rows, given)

    def covariance(self) -> pd.DataFrame:
        """Return the covariance matrix of the coefficients, in the user's units."""
        names = self.tables(0.5)["coefficients"].index
        mean, covariance = self.shared_moments()
        p = len(names)
        _, found = self.coordinates.fixed_moments(mean[:p], covariance[:p, :p])
        return pd.DataFrame(found, index=names, columns=names)

    @property
    def link(self) -> str:
        """The link between expectation and predictor."""
        return self.family.link

    def row_draws(self, data: Any, kind: str, groups: str, num_draws: int, seed: int) -> np.ndarray:
        """Draw predictors, expected responses or new responses of rows `(num_draws, n)`."""
        covariates = self.covariates_for(data, groups)
        criticism.check_size(num_draws, covariates.num_rows)
        drawn = self.draws_for(covariates, num_draws, seed)
        if kind == "predictive":
            return criticism.replicate_responses(drawn, self._trials_of(data), seed)
        check_word("kind", kind, (*kinds_of_prediction(self.family), "predictive"))
        return drawn_values(self.family, *drawn.predictors(), kind)

    def category_table(self, data: Any, groups: str) -> pd.DataFrame:
        """Return the probability of every category, a column each, of every row: the mean over draws."""
        if self.family.name != "ordinal":
            raise ValueError(
                f"kind={PROBABILITIES!r} is for family='ordinal'; this response is {self.family.name}. Its expectation "
                "is kind='response'."
            )
        covariates = self.covariates_for(data, groups)
        found = np.concatenate(
            [
                self._probabilities(covariates.take(slice(at, at + CHUNK_ROWS)))
                for at in range(0, covariates.num_rows, CHUNK_ROWS)
            ]
        )
        count, first = map(int, self.family.settings)
        return pd.DataFrame(found, index=self.labels_of(data), columns=list(range(first, first + count)))

    def _probabilities(self, covariates: Covariates) -> np.ndarray:
        drawn = self.draws_for(covariates, MEAN_DRAWS, 0)
        eta, disp = drawn.predictors()
        with float64():
            found = category_probabilities(self.family, jnp.asarray(eta), jnp.asarray(disp))
            return np.asarray(found.mean(axis=0))

    def predictive_table(self, data: Any, groups: str, prob: float, num_draws: int, seed: int) -> pd.DataFrame:
        """Return mean, sd and interval of a new response of every row."""
        covariates = self.covariates_for(data, groups)
        drawn = self.draws_for(covariates, num_draws, seed)
        columns = row_answers.predictive_columns(drawn, self._trials_of(data), prob, seed)
        return interval_table(self.labels_of(data), columns, prob)

    def labels_of(self, data: Any) -> pd.Index:
        """Return the labels of rows: of a frame its index, of the training rows that of the frame they came from."""
        if data is not None:
            return as_frame(data).index
        return pd.RangeIndex(len(self.training_rows().y)) if self.origin is None else self.origin.frame().index

    def residual_frame(self, seed: int, data: Any = None) -> pd.DataFrame:
        """Return observed and fitted values of all rows, with their residuals; of trials proportions."""
        rows = self.rows_of(data)
        fitted = self.predict(data, "response", "known", 0.5)["mean"].to_numpy()
        drawn = self.draws_for(rows.covariates, criticism.RESIDUAL_DRAWS, seed)
        found = row_answers.every_residual(drawn, rows, fitted, self.shared_moments()[0], seed)
        columns = {"observed": rows.y, "fitted": fitted, "response": rows.y - fitted}
        index = self.labels_of(data)
        return pd.DataFrame(columns | {"pearson": found.pearson, "quantile": found.quantile}, index=index)

    def explained(self, num_draws: int, seed: int, data: Any = None) -> dict[str, np.ndarray]:
        """Return draws of R², with and without the effects of groups, of very many rows from an even selection."""
        rows = self.rows_of(data)
        at = even_rows(len(rows.y))
        covariates = rows.covariates if at is None else rows.covariates.take(at)
        drawn = self.draws_for(covariates, num_draws, seed)
        without = drawn._replace(local=None) if self.has_groups else None
        return row_answers.explained_variance(self.family, drawn, without).shares()

    def leave_groups_out(self, by: Any, num_draws: int, seed: int, data: Any = None) -> Loo:
        """Return cross-validation that leaves out all rows of a group at a time."""
        rows = self.rows_of(data)
        codes, num_blocks = leave_groups.block_codes(self.block_labels(by, data), len(rows.y))
        drawn = self.draws_for(rows.covariates, num_draws, seed)
        values = self.block_values(rows, drawn, codes, num_blocks)
        return leave_groups.leave_blocks_out(values, self.log_ratios(rows, drawn.shared))

    def block_labels(self, by: Any, data: Any) -> Any:
        """Return a label for every row, from a column of the data or as they were given."""
        if not isinstance(by, str):
            return by
        if data is None and self.origin is None:
            raise ValueError(
                f"the fit does not hold its data frame, where {by!r} would be. Give data=, or a label for every row."
            )
        frame = self.origin.frame() if data is None and self.origin is not None else as_frame(data)
        if by not in frame.columns:
            raise ValueError(f"by names {by!r}, which is no column of the data: {listing(frame.columns)}.")
        return frame[by]

    def update(self, formula: str | None, changes: dict[str, Any]) -> Any:
        """Return a model like this one but for what is changed, not fitted yet."""
        if self.origin is None:
            raise ValueError(
                "only a fit that holds its data can be changed; loaded fits, and those from arrays or batches, do not. "
                "Call natvi.glm or natvi.glmm with the new formula."
            )
        return self.origin.again(formula, **changes)
