"""A generalized linear model whose Gaussian was corrected: the posterior as weighted draws."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from natvi.judge.importance import Weighted
from natvi.metrics.psis import resample
from natvi.models.linear.posterior import PREDICTIVE_DRAWS, GlmFit
from natvi.models.regression.predict import drawn_columns
from natvi.models.regression.rows import Covariates, Rows
from natvi.models.regression.tables import weighted_table


@dataclass(frozen=True, eq=False, kw_only=True)
class CorrectedFit(GlmFit):
    """The posterior as draws; `mean` and `factor` are the moments of the weighted draws.

    Attributes:
        theta: Draws of (beta, log dispersion) `(s, d)`.
        weights: Of these draws; they sum to one.
        choice: Why the Gaussian was not enough.
    """

    theta: np.ndarray
    weights: np.ndarray
    choice: str = ""

    @classmethod
    def of(cls, fit: GlmFit, found: Weighted, choice: str) -> "CorrectedFit":
        """Build it around the Gaussian fit from which the draws started."""
        parts = {field.name: getattr(fit, field.name) for field in fields(fit)}
        mean = found.weights @ found.draws
        errors = found.draws - mean
        covariance = (errors * found.weights[:, None]).T @ errors
        factor = np.sqrt(np.diag(covariance)) if fit.is_diagonal else np.linalg.cholesky(covariance)
        moments = {"mean": mean, "factor": factor}
        return cls(**(parts | moments), theta=found.draws, weights=found.weights, choice=choice)

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        effective = 1.0 / np.sum(self.weights**2)
        draws = f"{len(self.weights):,} weighted draws, as good as {effective:,.0f} independent ones"
        choice = (("choice", self.choice),) if self.choice else ()
        return (*super().headline, *choice, ("draws", draws))

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the coefficients, and the dispersion where there is one, from the weighted draws."""
        p, names = len(self.names), self.table_names
        table = weighted_table(names, self.readings(self.theta), self.weights, prob)
        return {"coefficients": table.iloc[:p]} | ({"dispersion": table.iloc[p:]} if len(names) > p else {})

    def draws(self, num_samples: int, seed: int) -> np.ndarray:
        """Return equally weighted draws `(num_samples, d)`."""
        return self.theta[resample(self.weights, num_samples, np.random.default_rng(seed))]

    def columns_of(self, rows: Covariates, kind: str, prob: float) -> np.ndarray:
        """Return mean, sd and interval of predictor or expected response of every row, from draws."""
        return drawn_columns(self.family, rows, self.draws(PREDICTIVE_DRAWS, 0), None, kind, prob)

    def log_ratios(self, rows: Rows, shared: np.ndarray) -> np.ndarray | None:
        """The draws are those of the posterior."""
        return None

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt."""
        arrays, document = super().store()
        draws = {"draws_theta": self.theta, "draws_weights": self.weights}
        return {**arrays, **draws}, {**document, "psis": {"choice": self.choice}}
