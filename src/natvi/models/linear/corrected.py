"""A generalized linear model whose Gaussian was corrected: the posterior as weighted draws."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from natvi.judge.importance import Weighted
from natvi.metrics.psis import resample, weighted_quantiles
from natvi.models.linear.posterior import GlmFit
from natvi.models.linear.predict import apply_mean, check_kind, covariates
from natvi.models.regression.tables import interval_names

PREDICTIVE_DRAWS, CHUNK_ROWS = 2000, 2000


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

    @property
    def is_corrected(self) -> bool:
        """Draws come from the posterior itself."""
        return True

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the coefficients, and the dispersion where there is one, from the weighted draws."""
        p, values = len(self.names), self.readings(self.theta)
        mean = self.weights @ values
        sd = np.sqrt(self.weights @ (values - mean) ** 2)
        low, high = weighted_quantiles(values, self.weights, [0.5 - prob / 2, 0.5 + prob / 2])
        names = [*self.names, *([] if self.dispersion_name is None else [self.dispersion_name])]
        columns = dict(zip(("mean", "sd", *interval_names(prob)), (mean, sd, low, high), strict=True))
        table = pd.DataFrame(columns, index=pd.Index(names))
        return {"Coefficients": table.iloc[:p]} | ({"Dispersion": table.iloc[p:]} if len(names) > p else {})

    def draws(self, num_samples: int, seed: int) -> np.ndarray:
        """Return equally weighted draws `(num_samples, d)`."""
        return self.theta[resample(self.weights, num_samples, np.random.default_rng(seed))]

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return predictions for new rows, or for the training rows where there are none, from draws."""
        if groups != "known":
            return super().predict(new_data, kind, groups, prob)
        check_kind(kind)
        X, offset, index = covariates(self, new_data)
        beta = self.draws(PREDICTIVE_DRAWS, 0)[:, : len(self.names)]
        columns = np.empty((4, len(X)))
        for at in range(0, len(X), CHUNK_ROWS):
            part = slice(at, at + CHUNK_ROWS)
            values = X[part] @ beta.T + (0.0 if offset is None else offset[part, None])
            values = values if kind == "link" else apply_mean(self.family, values)
            quantiles = np.quantile(values, [0.5 - prob / 2, 0.5 + prob / 2], axis=1)
            columns[:, part] = values.mean(axis=1), values.std(axis=1, ddof=1), *quantiles
        return pd.DataFrame(dict(zip(("mean", "sd", *interval_names(prob)), columns, strict=True)), index=index)

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt."""
        arrays, document = super().store()
        draws = {"draws_theta": self.theta, "draws_weights": self.weights}
        return {**arrays, **draws}, {**document, "psis": {"choice": self.choice}}


def restore_corrected(fit: GlmFit, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> CorrectedFit:
    """Rebuild a corrected fit around the moments that were stored with it."""
    theta, weights = arrays["draws_theta"], arrays["draws_weights"]
    if theta.shape != (len(weights), len(fit.mean)):
        raise ValueError(f"the array 'draws_theta' has shape {theta.shape}, which does not fit the model")
    parts = {field.name: getattr(fit, field.name) for field in fields(fit)}
    return CorrectedFit(**parts, theta=theta, weights=weights, choice=str(document["psis"]["choice"]))
