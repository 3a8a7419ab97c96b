"""What a model hands to its result: a core that every model has, and capabilities that it adds or not."""

from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import pandas as pd

from natvi.judge.predictive import ModelCheck


@runtime_checkable
class FittedModel(Protocol):
    """The core: what was fitted, tables, draws, and the model as plain data."""

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        ...

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return tidy tables of parameters by their role, such as "coefficients" or "variance_components"."""
        ...

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Return draws by name, leading axis `num_samples`."""
        ...

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Return coordinates and dimensions of the names that are not scalars."""
        ...

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt; `registry` says how."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """A model that predicts the response of new rows."""

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return predictions for new rows."""
        ...


@runtime_checkable
class HasRandomEffects(Protocol):
    """A model with effects of groups."""

    def random_effects(self, prob: float) -> pd.DataFrame:
        """Return a tidy table of the random effects."""
        ...


@runtime_checkable
class HasConstraints(Protocol):
    """A model whose parameters are read in a constrained space."""

    def constraints(self) -> dict[str, str]:
        """Return the name of every parameter's constraint; "real" where there is none."""
        ...


@runtime_checkable
class HoldsRows(Protocol):
    """A model that can be held against data: `data` is None for the training data."""

    @property
    def rows(self) -> Any:
        """The training data, or None."""
        ...

    def observed(self, data: Any = None) -> np.ndarray:
        """Return the responses."""
        ...

    def posterior_predictive(self, num_draws: int, seed: int, data: Any = None) -> np.ndarray:
        """Return replicated responses `(num_draws, n)`."""
        ...

    def log_likelihood(self, num_draws: int, seed: int, data: Any = None) -> np.ndarray:
        """Return the log-likelihood of every row under every draw `(num_draws, n)`."""
        ...

    def loo(self, num_draws: int, seed: int, data: Any = None) -> Any:
        """Return leave-one-out cross-validation."""
        ...

    def check_prior(self) -> tuple[str, ...] | None:
        """Return in which ways the prior decides, or None where it is not known."""
        ...

    def log_prior(self, num_draws: int, seed: int) -> np.ndarray:
        """Return the log prior density of the draws of `sample`."""
        ...

    def residuals(self, seed: int, data: Any = None) -> Any:
        """Return fitted values, Pearson residuals and quantile residuals."""
        ...

    def check_model(self) -> ModelCheck | None:
        """Return how well the model describes its training data; None where they are not at hand."""
        ...

    def is_discrete(self) -> bool:
        """Whether responses are counts or 0 and 1."""
        ...


@runtime_checkable
class AnswersQuestions(Protocol):
    """A regression from which averages over data, ratios, residuals and other models can be had."""

    @property
    def link(self) -> str:
        """The link between expectation and predictor."""
        ...

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return tidy tables of parameters by their role."""
        ...

    def means(self, variable: str, at: Any, by: Any, prob: float, setting: dict[str, Any]) -> pd.DataFrame:
        """Return averages over the data at some values of a column."""
        ...

    def compare(
        self, variable: str, levels: Any, pairs: str, by: Any, measure: str, prob: float, setting: dict[str, Any]
    ) -> pd.DataFrame:
        """Return differences or ratios of these averages."""
        ...

    def slopes(self, variable: str, by: Any, prob: float, setting: dict[str, Any]) -> pd.DataFrame:
        """Return average derivatives in a column of numbers."""
        ...

    def covariance(self) -> pd.DataFrame:
        """Return the covariance matrix of the coefficients."""
        ...

    def row_draws(self, data: Any, kind: str, groups: str, num_draws: int, seed: int) -> np.ndarray:
        """Draw predictors, expected or new responses `(num_draws, n)`."""
        ...

    def predictive_table(self, data: Any, groups: str, prob: float, num_draws: int, seed: int) -> pd.DataFrame:
        """Return mean, sd and interval of new responses."""
        ...

    def residual_frame(self, seed: int, data: Any = None) -> pd.DataFrame:
        """Return observed and fitted values with residuals."""
        ...

    def explained(self, num_draws: int, seed: int, data: Any = None) -> dict[str, np.ndarray]:
        """Return draws of R², by name."""
        ...

    def leave_groups_out(self, by: Any, num_draws: int, seed: int, data: Any = None) -> Any:
        """Return cross-validation of whole groups."""
        ...

    def update(self, formula: str | None, changes: dict[str, Any]) -> Any:
        """Return a changed model, not fitted yet."""
        ...


@runtime_checkable
class SharesVariance(Protocol):
    """A regression with random effects, which share out the variance of the predictor."""

    def variance_shares(self, num_draws: int, seed: int, data: Any = None) -> dict[str, np.ndarray]:
        """Return draws of every random term's share, by name."""
        ...


@runtime_checkable
class DescribesItself(Protocol):
    """A model that can be told in words, in equations, and as the call that makes it."""

    def description(self) -> Any:
        """Return `words`, `equations` and `call`."""
        ...


@runtime_checkable
class DrawsPictures(Protocol):
    """A model that draws its own pictures, where coefficients are not what it is about."""

    def pictures(self) -> list[Any]:
        """Return the pictures of the report."""
        ...


MISSING = {
    Predicts: (
        "it does not say how to predict. Predictions are offered by fits of natvi.glm, natvi.glmm, natvi.bnn and the "
        "deep GLM estimators; for this one apply a function of your own to sample()."
    ),
    HasRandomEffects: (
        "it has no random effects: all its parameters are in summary(). Fits of natvi.glmm have them, with a formula "
        "such as 'y ~ x + (1 | group)'."
    ),
    HasConstraints: (
        "it has no constrained parameters. Fits of natvi.fit have them, and what summary() and sample() give is in the "
        "user's space for every model."
    ),
    HoldsRows: (
        "it cannot be held against data. Residuals, predictive checks, log-likelihoods and loo are offered by fits of "
        "natvi.glm and natvi.glmm."
    ),
    SharesVariance: (
        "it has no random effects whose variances could be compared. Fits of natvi.glmm have them, with a formula such "
        "as 'y ~ x + (1 | group)'; shares of explained variance are in r2()."
    ),
    AnswersQuestions: (
        "it keeps no rows to average over, or is no regression. Comparisons, slopes, ratios, residuals and update are "
        "offered by fits of natvi.glm and natvi.glmm; for this one apply a function of your own to sample()."
    ),
}

Capability = TypeVar("Capability")


def ask(model: Any, capability: type[Capability]) -> Capability:
    """Return the model as one that has a capability, or say which models do."""
    if isinstance(model, capability):
        return model
    raise ValueError(f"Not available for this model ({type(model).__name__}): {MISSING[capability]}")
