"""What a model hands to its result."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from natvi.judge.predictive import ModelCheck


@runtime_checkable
class FittedModel(Protocol):
    """What a model hands to its result: names, tables, draws, predictions, and itself as plain data."""

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        ...

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return tidy tables of parameters, by title."""
        ...

    def random_effects(self, prob: float) -> pd.DataFrame:
        """Return a tidy table of the random effects."""
        ...

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Return draws by name, leading axis `num_samples`."""
        ...

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Return coordinates and dimensions of the names that are not scalars."""
        ...

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return predictions for new rows."""
        ...

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt."""
        ...


@runtime_checkable
class PredictiveModel(Protocol):
    """What a model offers besides where its fit can be held against data; `data` is None for the training data."""

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
class DrawnModel(Protocol):
    """A model that draws its own pictures, where coefficients are not what it is about."""

    def pictures(self) -> list[Any]:
        """Return the pictures of the report."""
        ...
