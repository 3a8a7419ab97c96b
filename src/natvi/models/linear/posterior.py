"""A fitted generalized linear model: names, tables, draws and predictions around its Gaussian."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from natvi.families.table import Family
from natvi.formula.columns import ColumnRecipe
from natvi.models.linear.log_joint import log_joint
from natvi.models.linear.new_rows import array_covariates, array_labels, array_rows
from natvi.models.regression.criticism import Drawn
from natvi.models.regression.family.extras import natural, shown, shown_row
from natvi.models.regression.family.formulas import store_parts
from natvi.models.regression.fit import RegressionFit
from natvi.models.regression.names import extra_names, shown_names
from natvi.models.regression.origin import Origin
from natvi.models.regression.predict import (
    KINDS,
    PROBABILITIES,
    check_word,
    drawn_columns,
    drawn_means,
    gaussian_columns,
    kinds_of_prediction,
    response_moments,
)
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.storage import prior_arrays, store_prior
from natvi.models.regression.rows import Covariates, Rows, part_of
from natvi.models.regression.tables import gaussian_table, interval_table

LARGEST_DRAW = 2_000_000_000  # bytes
PREDICTIVE_DRAWS = 2000


@dataclass(frozen=True, eq=False)
class GlmFit(RegressionFit):
    """The posterior N(mean, C C') of (beta, log dispersion) with everything needed to read it.

    `factor` is C `(d, d)`, or the sds `(d,)` of independent coordinates. `rows` refers to the training data; a fit that
    was loaded from a file has none.
    """

    formula: str | None
    family: Family
    names: tuple[str, ...]
    mean: np.ndarray
    factor: np.ndarray
    prior: Prior
    num_rows: int
    notes: tuple[str, ...]
    columns: ColumnRecipe | None = None
    intercept: bool = False
    has_offset: bool = False
    rows: Rows | None = None
    origin: Origin | None = None

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        what = self.formula or f"y on {len(self.names):,} columns of an array"
        lines = [
            ("model", f"{what}, {self.family.name} response, {self.family.link} link"),
            ("data", f"{self.num_rows:,} rows"),
            ("prior", self.prior.description),
        ]
        return (*lines, *(("note", note) for note in self.notes))

    @property
    def is_diagonal(self) -> bool:
        """Whether the coordinates are independent."""
        return self.factor.ndim == 1

    @property
    def sds(self) -> np.ndarray:
        """The sd of every coordinate of (beta, log dispersion)."""
        return np.abs(self.factor) if self.is_diagonal else np.sqrt(np.sum(self.factor**2, axis=1))

    def shared_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance in the coordinates of the fit."""
        return self.mean, np.diag(self.factor**2) if self.is_diagonal else self.factor @ self.factor.T

    @property
    def coefficient_sds(self) -> np.ndarray:
        """The sds of the coefficients, in the user's units."""
        p, M = len(self.names), self.coordinates.fixed
        if M is None:
            return self.sds[:p]
        root = M * self.factor[:p] if self.is_diagonal else M @ self.factor[:p, :p]
        return np.sqrt(np.sum(root**2, axis=1))

    @property
    def extra_names(self) -> tuple[str, ...]:
        """Dispersions on their natural scale: sigma, phi or shape, kept apart from a covariate of that name."""
        return extra_names(self.family, self.names)

    @property
    def table_names(self) -> list[str]:
        """The names of what the tables show: coefficients, and the dispersion as people read it."""
        return [*self.names, *shown_names(self.family, self.names)]

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the coefficients, and the dispersion where there is one: its logarithm is Gaussian."""
        p, sds = len(self.names), self.sds
        mean = self.coordinates.coefficients(self.mean[:p])
        tables = {"coefficients": gaussian_table(list(self.names), mean, self.coefficient_sds, prob)}
        if len(self.table_names) > p:
            rows = [
                shown_row(extra, float(self.mean[k]), float(sds[k]) ** 2, 0.5 - prob / 2)
                for k, extra in enumerate(self.family.extras, p)
            ]
            tables["dispersion"] = interval_table(self.table_names[p:], np.array(rows).T, prob)
        return tables

    def draws(self, num_samples: int, seed: int) -> np.ndarray:
        """Draw theta = mean + C z, shape `(num_samples, d)`, in the coordinates of the fit."""
        if 8 * num_samples * len(self.mean) > LARGEST_DRAW:
            raise ValueError(
                f"{num_samples:,} draws of {len(self.mean):,} parameters need "
                f"{8 * num_samples * len(self.mean) / 2**30:.1f} GiB. Draw fewer."
            )
        z = np.random.default_rng(seed).standard_normal((num_samples, len(self.mean)))
        return self.mean + (z * self.factor if self.is_diagonal else z @ self.factor.T)

    def readings(self, theta: np.ndarray) -> np.ndarray:
        """Map draws in the coordinates of the fit to what the tables show: coefficients and dispersion."""
        p = len(self.names)
        with np.errstate(over="ignore"):
            spread = shown(self.family.extras, theta[:, p:])
        return np.concatenate([self.coordinates.coefficients(theta[:, :p]), spread], axis=1)

    def directions(self) -> np.ndarray:
        """Return, for each of the readings, the combination of coordinates with which it moves, one a line."""
        p, found = len(self.names), np.eye(len(self.mean))
        found[:p, :p] = self.coordinates.coefficients(found[:p, :p]).T
        return found

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw the coefficients, the dispersion as tables show it, and the dispersion itself, by name."""
        draws = self.draws(num_samples, seed)
        named = dict(zip(self.table_names, self.readings(draws).T, strict=True))
        own = zip(self.extra_names, self.family.extras, draws.T[len(self.names) :], strict=True)
        return named | {name: natural(extra, values) for name, extra, values in own}

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Every parameter is a scalar."""
        return {}, {}

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return predictions for new rows, or for the training rows where there are none."""
        if kind == PROBABILITIES:
            return self.category_table(new_data, groups)
        check_word("kind", kind, kinds_of_prediction(self.family))
        rows = self.covariates_for(new_data, groups)
        index = pd.RangeIndex(self.num_rows) if new_data is None else self.labels_of(new_data)
        return interval_table(index, self.columns_of(rows, kind, prob), prob)

    def covariates_for(self, data: Any, groups: str) -> Covariates:
        """Return new rows, by default the training rows; there are no groups."""
        if groups != "known":
            raise ValueError(f"groups={groups!r} is for models with random effects; this one has none. Leave it out.")
        return self.training_rows().covariates if data is None else self.covariates_of(data)

    def labels_of(self, data: Any) -> pd.Index:
        """Return the labels of rows."""
        return array_labels(data) if data is not None and self.columns is None else super().labels_of(data)

    def columns_of(self, rows: Covariates, kind: str, prob: float) -> np.ndarray:
        """Return mean, sd and interval of predictor or expected response of every row, `(4, n)`."""
        own = kind not in KINDS  # a number that has a predictor of its own
        if own or (kind != "link" and self.family.mean_given is not None):
            return drawn_columns(self.family, rows, self.draws(PREDICTIVE_DRAWS, 0), None, kind, prob)
        return gaussian_columns(self.family, *self._predictor_moments(rows), kind, prob)

    def _predictor_moments(self, rows: Covariates) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd of eta = x'beta + offset for every row: x'mu and |C'x|."""
        p, X = len(self.names), part_of(self.family, rows, 0).X
        mean = X @ self.mean[:p] if rows.offset is None else X @ self.mean[:p] + rows.offset
        if self.is_diagonal:
            return mean, np.sqrt(X**2 @ self.factor[:p] ** 2)
        return mean, np.sqrt(np.sum((X @ self.factor[:p]) ** 2, axis=1))

    # --- the fit against data --------------------------------------------------------------------------------

    def shared_names(self) -> list[str]:
        """Return the names of the coefficients and of the dispersion."""
        return [*self.names, *self.extra_names]

    def covariates_of(self, data: Any) -> Covariates:
        """Return new rows in the coordinates of the fit, without their responses."""
        if self.columns is None:
            rows = array_covariates(data, self.names, self.intercept, self.has_offset)
            return rows._replace(X=self.coordinates.columns(rows.X))
        X, _, offset = self.columns.apply(data)
        return Covariates(self.coordinates.columns(X), offset if self.columns.offset else None)

    def rows_of(self, data: Any) -> Rows:
        """Return new rows with their responses, weights and trials; without data the training rows."""
        if data is None or self.columns is not None:
            return super().rows_of(data)
        return array_rows(data, self.covariates_of(data), self.family.name)

    def draws_for(self, covariates: Covariates, num_draws: int, seed: int) -> Drawn:
        """Draw the parameters."""
        return Drawn(self.family, covariates, self.draws(num_draws, seed))

    def fitted_values(self, drawn: Drawn) -> np.ndarray:
        """Return the expected response of every row under the Gaussian."""
        if self.family.mean_given is not None:
            return drawn_means(self.family, *drawn.predictors()).mean(axis=0)
        return response_moments(self.family, *self._predictor_moments(drawn.covariates))[0]

    def log_ratios(self, rows: Rows, shared: np.ndarray) -> np.ndarray | None:
        """Return log p(y, theta) - log q(theta) of every draw, up to rounding on all constants."""
        # log q up to the same -(d/2) log 2 pi as the joint density
        errors = shared - self.mean
        z = errors / self.factor if self.is_diagonal else np.linalg.solve(self.factor, errors.T).T
        diagonal = self.factor if self.is_diagonal else np.diagonal(self.factor)
        log_q = -0.5 * np.sum(z**2, axis=1) - np.sum(np.log(np.abs(diagonal)))
        return log_joint(self.family, self.prior, rows, shared) - log_q

    # --- storage ---------------------------------------------------------------------------------------------

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt; the data are not among them."""
        arrays = {"mean": self.mean, "factor": self.factor, **prior_arrays(self.prior)}
        document = {
            "model": "glm",
            "formula": self.formula,
            "family": self.family.full_name,
            "link": self.family.link,
            "parts": store_parts(self.family),
            "names": list(self.names),
            "columns": None if self.columns is None else self.columns.to_dict(),
            "prior": store_prior(self.prior),
            "num_rows": self.num_rows,
            "notes": list(self.notes),
            "intercept": self.intercept,
            "has_offset": self.has_offset,
        }
        return {name: np.asarray(array) for name, array in arrays.items()}, document
