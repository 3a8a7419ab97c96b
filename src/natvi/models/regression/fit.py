"""What the fits of all regressions have in common: rows, and what is said by holding the fit against them."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from natvi.families.table import Family
from natvi.formula.columns import ColumnRecipe, as_frame
from natvi.formula.design import Formula, build_design, parse_formula
from natvi.judge.predictive import ModelCheck, check_model
from natvi.judge.replicate import CHECK_DRAWS, even_rows
from natvi.models.regression import criticism
from natvi.models.regression.coordinates import Coordinates
from natvi.models.regression.criticism import Drawn, Loo, Residuals
from natvi.models.regression.prior.check import prior_concerns
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.log_density import log_prior
from natvi.models.regression.response import encode_response
from natvi.models.regression.rows import Covariates, Rows, gather


class RegressionFit(ABC):
    """A fitted regression; `rows` refers to the training data, and a fit that was loaded from a file has none."""

    formula: str | None
    family: Family
    prior: Prior
    columns: ColumnRecipe | None
    rows: Rows | None

    # --- what a model adds -----------------------------------------------------------------------------------

    @abstractmethod
    def covariates_of(self, data: Any) -> Covariates:
        """Return new rows in the coordinates of the fit, without their responses."""

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
        mean, _ = self.shared_moments()
        disp = float(mean[rows.X.shape[1]]) if self.family.has_dispersion else None
        return criticism.find_residuals(drawn, rows, self.fitted_values(drawn), disp, seed)

    def check_model(self) -> ModelCheck | None:
        """Return how well the model describes its data; None where they are not at hand."""
        if self.rows is None:
            return None
        at = even_rows(len(self.rows.y))
        rows = self.rows if at is None else self.rows.take(at)
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
        return self.family.name not in ("gaussian", "gamma")
