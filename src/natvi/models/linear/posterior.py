"""A fitted generalized linear model: names, tables, draws and predictions around its Gaussian."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from natvi.families.table import Family, find_family
from natvi.formula.columns import ColumnRecipe
from natvi.judge.predictive import ModelCheck, check_model
from natvi.models.linear import criticism as glm_criticism
from natvi.models.linear.predict import predict_rows
from natvi.models.linear.rows import GlmRows
from natvi.models.regression.coordinates import Coordinates
from natvi.models.regression.names import dispersion_name
from natvi.models.regression.prior.check import prior_concerns
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.log_density import log_prior
from natvi.models.regression.prior.storage import prior_arrays, restore_prior, store_prior
from natvi.models.regression.tables import gaussian_table, interval_names, lognormal_row

LARGEST_DRAW = 2_000_000_000  # bytes


@dataclass(frozen=True, eq=False)
class GlmFit:
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
    rows: GlmRows | None = None

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
    def is_corrected(self) -> bool:
        """Whether draws come from the posterior itself, not from its Gaussian approximation."""
        return False

    @property
    def sds(self) -> np.ndarray:
        """The sd of every coordinate of (beta, log dispersion)."""
        return np.abs(self.factor) if self.is_diagonal else np.sqrt(np.sum(self.factor**2, axis=1))

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance in the coordinates of the fit."""
        return self.mean, np.diag(self.factor**2) if self.is_diagonal else self.factor @ self.factor.T

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of `mean`, `factor` and `rows`; tables and draws by name are in the user's."""
        return self.prior.coordinates

    @property
    def coefficient_sds(self) -> np.ndarray:
        """The sds of the coefficients, in the user's units."""
        p, M = len(self.names), self.coordinates.fixed
        if M is None:
            return self.sds[:p]
        root = M * self.factor[:p] if self.is_diagonal else M @ self.factor[:p, :p]
        return np.sqrt(np.sum(root**2, axis=1))

    @property
    def dispersion_name(self) -> str | None:
        """The dispersion on its natural scale: sigma, phi or shape, kept apart from a covariate of that name."""
        return dispersion_name(self.family, self.names)

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the coefficients, and the dispersion where there is one: its logarithm is Gaussian."""
        p, sds = len(self.names), self.sds
        mean = self.coordinates.coefficients(self.mean[:p])
        tables = {"Coefficients": gaussian_table(list(self.names), mean, self.coefficient_sds, prob)}
        if self.dispersion_name is not None:
            row = lognormal_row(float(self.mean[p]), float(sds[p] ** 2), 0.5 - prob / 2)
            columns = ("mean", "sd", *interval_names(prob))
            tables["Dispersion"] = pd.DataFrame([row], columns=list(columns), index=pd.Index([self.dispersion_name]))
        return tables

    def random_effects(self, prob: float) -> pd.DataFrame:
        """Say that there are none."""
        raise ValueError(
            "This model has no random effects: all its parameters are in summary(). For effects of groups fit "
            "natvi.glmm with a formula such as 'y ~ x + (1 | group)'."
        )

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
            return np.concatenate([self.coordinates.coefficients(theta[:, :p]), np.exp(theta[:, p:])], axis=1)

    def directions(self) -> np.ndarray:
        """Return, for each of the readings, the combination of coordinates with which it moves, one a line."""
        p, found = len(self.names), np.eye(len(self.mean))
        found[:p, :p] = self.coordinates.coefficients(found[:p, :p]).T
        return found

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw the coefficients and the dispersion, by name."""
        draws = self.draws(num_samples, seed)
        coefficients = self.coordinates.coefficients(draws[:, : len(self.names)])
        named = {name: coefficients[:, j] for j, name in enumerate(self.names)}
        return named if self.dispersion_name is None else named | {self.dispersion_name: np.exp(draws[:, -1])}

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Every parameter is a scalar."""
        return {}, {}

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return predictions for new rows, or for the training rows where there are none."""
        if groups != "known":
            raise ValueError(f"groups={groups!r} is for models with random effects; this one has none. Leave it out.")
        return predict_rows(self, new_data, kind, prob)

    # --- the fit against data --------------------------------------------------------------------------------

    def observed(self, data: Any = None) -> np.ndarray:
        """Return the responses; of trials the successes."""
        return glm_criticism.observed(self, data)

    def posterior_predictive(self, num_draws: int, seed: int, data: Any = None) -> np.ndarray:
        """Draw replicated responses `(num_draws, n)`."""
        return glm_criticism.posterior_predictive(self, num_draws, seed, data)

    def log_likelihood(self, num_draws: int, seed: int, data: Any = None) -> np.ndarray:
        """Return the log-likelihood of every row under every draw, `(num_draws, n)`."""
        return glm_criticism.log_likelihood(self, num_draws, seed, data)

    def loo(self, num_draws: int, seed: int, data: Any = None) -> glm_criticism.Loo:
        """Return leave-one-out cross-validation."""
        return glm_criticism.loo(self, num_draws, seed, data)

    def residuals(self, seed: int, data: Any = None) -> glm_criticism.Residuals:
        """Return fitted values with Pearson and quantile residuals."""
        return glm_criticism.residuals(self, seed, data)

    def check_model(self) -> ModelCheck | None:
        """Return how well the model describes its data; None where they are not at hand."""
        return None if self.rows is None else check_model(glm_criticism.replicate_rows(self), self.family.name)

    def check_prior(self) -> tuple[str, ...] | None:
        """Return in which ways the prior decides, or None where it is not known."""
        mean, covariance = self.moments()
        if len(self.prior.mean) != len(mean):
            return None
        return prior_concerns(
            self.prior,
            [*self.names, *([] if self.dispersion_name is None else [self.dispersion_name])],
            mean,
            covariance,
        )

    def log_prior(self, num_draws: int, seed: int) -> np.ndarray:
        """Return the log prior density of the draws of `sample`, in the coordinates of the fit."""
        return log_prior(self.prior, self.draws(num_draws, seed))

    def is_discrete(self) -> bool:
        """Whether responses are counts or 0 and 1."""
        return self.family.name not in ("gaussian", "gamma")

    # --- storage ---------------------------------------------------------------------------------------------

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt; the data are not among them."""
        arrays = {"mean": self.mean, "factor": self.factor, **prior_arrays(self.prior)}
        document = {
            "model": "glm",
            "formula": self.formula,
            "family": self.family.name,
            "link": self.family.link,
            "names": list(self.names),
            "columns": None if self.columns is None else self.columns.to_dict(),
            "prior": store_prior(self.prior),
            "num_rows": self.num_rows,
            "notes": list(self.notes),
            "intercept": self.intercept,
            "has_offset": self.has_offset,
        }
        return {name: np.asarray(array) for name, array in arrays.items()}, document

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> "GlmFit":
        """Rebuild the model from its stored form."""
        from natvi.models.linear.corrected import restore_corrected  # which builds on this file

        fit = GlmFit(
            formula=document["formula"],
            family=find_family(document["family"], document["link"]),
            names=tuple(document["names"]),
            mean=arrays["mean"],
            factor=arrays["factor"],
            prior=restore_prior(arrays, document["prior"], tuple(document["names"]), 0),
            num_rows=document["num_rows"],
            notes=tuple(document["notes"]),
            columns=None if document["columns"] is None else ColumnRecipe.from_dict(document["columns"]),
            intercept=document["intercept"],
            has_offset=document["has_offset"],
        )
        fit._check_shapes(arrays)
        return restore_corrected(fit, arrays, document) if "psis" in document else fit

    def _check_shapes(self, arrays: dict[str, np.ndarray]) -> None:
        d = len(self.names) + int(self.family.has_dispersion)
        allowed = {"mean": [(d,)], "factor": [(d, d), (d,)], "prior_mean": [(d,)], "prior_sd": [(d,)]}
        for name, shapes in allowed.items():
            if arrays[name].shape not in shapes:
                raise ValueError(f"the array {name!r} has shape {arrays[name].shape}, and {shapes[0]} is needed")
        if self.columns is not None and len(self.columns.fixed_names) != len(self.names):
            raise ValueError(f"{len(self.columns.fixed_names)} columns for {len(self.names)} names")
