"""A fitted mixed model: names, tables, draws and predictions around its Gaussian."""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd

from natvi.families.table import Family, find_family
from natvi.formula.columns import ColumnRecipe
from natvi.gaussian import ArrowPrecision
from natvi.judge.predictive import ModelCheck, check_model
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.models.mixed import criticism as mixed_criticism
from natvi.models.mixed.criticism import MixedRows
from natvi.models.mixed.draws import draw_in_batches
from natvi.models.mixed.predict import exact_columns, plain_labels, predict_rows
from natvi.models.mixed.variance import component_draws, component_names, component_table
from natvi.models.regression.coordinates import Coordinates
from natvi.models.regression.names import dispersion_name
from natvi.models.regression.prior.check import prior_concerns
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.log_density import log_prior
from natvi.models.regression.prior.storage import prior_arrays, restore_prior, store_prior
from natvi.models.regression.tables import gaussian_table
from natvi.target.mixed.random_effects import omega_positions
from natvi.x64 import float64

LARGEST_DRAW = 2_000_000_000  # bytes


@dataclass(frozen=True, eq=False)
class MixedFit:
    """The posterior of a mixed model with everything needed to read it: here a Gaussian on the arrow.

    `rows` refers to the training data; a fit that was loaded from a file has none. `choice` says which method
    `method="auto"` has taken and why.
    """

    formula: str
    family: Family
    columns: ColumnRecipe
    fixed_names: tuple[str, ...]
    random_names: tuple[str, ...]
    group_name: str
    group_labels: np.ndarray
    posterior: ArrowPrecision
    local_sds: np.ndarray
    prior: Prior
    num_rows: int
    notes: tuple[str, ...]
    correlated: bool = True
    rows: MixedRows | None = None
    choice: str = ""

    def parts(self) -> dict[str, Any]:
        """Return all fields by name, for a fit that is built around this one."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        groups = f"{self.num_rows:,} rows in {len(self.group_labels):,} groups of {self.group_name}"
        # a binomial response is predicted per trial
        what = "binomial response (proportion of successes)" if self.family.name == "binomial" else ""
        lines = [
            ("model", f"{self.formula}, {what or self.family.name + ' response'}, {self.family.link} link"),
            ("data", groups),
            ("prior", self.prior.description),
        ]
        lines += [("choice", self.choice)] if self.choice else []
        return (*lines, *(("note", note) for note in self.notes))

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of the fit; tables and draws by name are in the user's."""
        return self.prior.coordinates

    @property
    def assumption(self) -> str:
        """What is assumed about the posterior, and may be wrong."""
        return "the Gaussian shape of the random effects"

    @property
    def omega_start(self) -> int:
        """Position of omega among the shared coordinates."""
        return len(self.fixed_names) + int(self.family.has_dispersion)

    def shared_names(self) -> list[str]:
        """Return a readable name of every shared coordinate."""
        effects, group = self.random_names, self.group_name
        names = [*self.fixed_names, *self.dispersion_position()]
        for row, column in omega_positions(len(effects), self.correlated):
            kind = f"sd({effects[row]}|{group})" if row == column else f"corr({effects[column]},{effects[row]}|{group})"
            names.append(kind)
        return names

    def log_sd_positions(self) -> dict[str, int]:
        """Return where the log sds of the random effects stand among the shared coordinates."""
        positions = omega_positions(len(self.random_names), self.correlated)
        return {
            f"sd({effect}|{self.group_name})": self.omega_start + positions[k, k]
            for k, effect in enumerate(self.random_names)
        }

    def dispersion_position(self) -> dict[str, int]:
        """Return where the log dispersion stands among the shared coordinates, by its name; empty without one."""
        dispersion = dispersion_name(self.family, self.fixed_names)
        return {dispersion: len(self.fixed_names)} if dispersion else {}

    def shared_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the shared coordinates (beta, dispersion, omega)."""
        R = np.asarray(self.posterior.inverse_shared)
        return np.asarray(self.posterior.mean.shared), R.T @ R

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the fixed effects and the variance components."""
        p = len(self.fixed_names)
        mean, covariance = self.shared_moments()
        mean, covariance = self.coordinates.fixed_moments(mean[:p], covariance[:p, :p])
        fixed = gaussian_table(list(self.fixed_names), mean, np.sqrt(np.diag(covariance)), prob)
        return {"Fixed effects": fixed, "Variance components": component_table(self, prob)}

    def random_effects(self, prob: float) -> pd.DataFrame:
        """Return mean, sd and interval of every group's effects."""
        r, n = self.posterior.mean.local.shape
        table = self.local_table(prob)
        taken = self.group_name in ("effect", *table.columns)
        table.insert(0, "group" if taken else self.group_name, np.tile(self.group_labels, r))
        table.insert(1, "effect", np.repeat(self.random_names, n))
        return table

    def local_table(self, prob: float) -> pd.DataFrame:
        """Return mean, sd and interval of the random effects, effect after effect."""
        mean = self.coordinates.effects(np.asarray(self.posterior.mean.local)).ravel()
        return gaussian_table(range(len(mean)), mean, self.local_sds.ravel(), prob)

    def shared_draws(self, num_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the shared coordinates `(s, g)`."""
        return rng.multivariate_normal(*self.shared_moments(), num_draws, method="cholesky")

    def readings(self, shared: np.ndarray) -> np.ndarray:
        """Map draws of the shared coordinates to what the tables show: fixed effects and variance components."""
        fixed = self.coordinates.coefficients(shared[:, : len(self.fixed_names)])
        return np.concatenate([fixed, component_draws(self, shared)], axis=1)

    def inner_readings(self, shared: np.ndarray) -> np.ndarray:
        """Map draws as `readings` does, but to what no shift and no unit of a variable changes."""
        return np.concatenate([shared[:, : len(self.fixed_names)], component_draws(self, shared, inside=True)], axis=1)

    def known_columns(
        self, X: np.ndarray, Z: np.ndarray, offset: np.ndarray, codes: np.ndarray, kind: str, prob: float
    ) -> np.ndarray:
        """Return mean, sd and interval of predictor or expected response of rows in known groups, `(4, N)`."""
        return exact_columns(self, X, Z, offset, codes, kind, prob)

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw fixed effects, variance components and random effects."""
        r, n = self.posterior.mean.local.shape
        if random_effects and 8 * num_samples * r * n > LARGEST_DRAW:
            raise ValueError(
                f"{num_samples} draws of {r * n:,} random effects need {8 * num_samples * r * n / 2**30:.1f} GiB. "
                "Draw fewer, or leave them out with random_effects=False."
            )
        local, shared = self.joint_draws(num_samples, seed, random_effects)
        fixed = self.coordinates.coefficients(shared[:, : len(self.fixed_names)])
        named = {name: fixed[:, j] for j, name in enumerate(self.fixed_names)}
        named |= dict(zip(component_names(self), component_draws(self, shared).T, strict=True))
        if random_effects:
            local = self.coordinates.effects(local)
            named |= {f"{e}|{self.group_name}": local[:, k] for k, e in enumerate(self.random_names)}
        return named

    def covariates(self, new_data: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return X, Z and the offset of new rows, in the coordinates of the fit."""
        X, Z, offset = self.columns.apply(new_data)
        return self.coordinates.columns(X), self.coordinates.random_columns(Z), offset

    def joint_draws(self, num_samples: int, seed: int, keep_local: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw `(s, r, n)` and `(s, g)`, in the coordinates of the fit."""
        with float64():
            draw = partial(_draw, jax.device_put(self.posterior))
        return draw_in_batches(draw, num_samples, seed, self.local_sds.size, keep_local)

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Return coordinates and dimensions of the random effects."""
        taken = self.group_name in ("chain", "draw", *self.fixed_names, *component_names(self))
        name = f"groups of {self.group_name}" if taken else self.group_name
        dims = {f"{effect}|{self.group_name}": [name] for effect in self.random_names}
        return {name: self.group_labels.tolist()}, dims

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Predict the linear predictor or the expected response of new rows."""
        return predict_rows(self, new_data, kind, groups, prob)

    # --- the fit against data --------------------------------------------------------------------------------

    def observed(self, data: Any = None) -> np.ndarray:
        """Return the responses; of trials the successes."""
        return mixed_criticism.observed(self, data)

    def posterior_predictive(self, num_draws: int, seed: int, data: Any = None) -> np.ndarray:
        """Draw replicated responses `(num_draws, n)`."""
        return mixed_criticism.posterior_predictive(self, num_draws, seed, data)

    def log_likelihood(self, num_draws: int, seed: int, data: Any = None) -> np.ndarray:
        """Return the log-likelihood of every row under every draw, `(num_draws, n)`."""
        return mixed_criticism.log_likelihood(self, num_draws, seed, data)

    def loo(self, num_draws: int, seed: int, data: Any = None) -> mixed_criticism.Loo:
        """Return leave-one-out cross-validation."""
        return mixed_criticism.loo(self, num_draws, seed, data)

    def residuals(self, seed: int, data: Any = None) -> mixed_criticism.Residuals:
        """Return fitted values with Pearson and quantile residuals."""
        return mixed_criticism.residuals(self, seed, data)

    def check_model(self) -> ModelCheck | None:
        """Return how well the model describes its data; None where they are not at hand."""
        return None if self.rows is None else check_model(mixed_criticism.replicate_rows(self), self.family.name)

    def check_prior(self) -> tuple[str, ...] | None:
        """Return in which ways the prior decides, or None where it is not known."""
        mean, covariance = self.shared_moments()
        if len(self.prior.mean) != len(mean):
            return None
        return prior_concerns(self.prior, self.shared_names(), mean, covariance)

    def log_prior(self, num_draws: int, seed: int) -> np.ndarray:
        """Return the log prior density of the draws of `sample`, in the coordinates of the fit."""
        return log_prior(self.prior, self.joint_draws(num_draws, seed, False)[1])

    def is_discrete(self) -> bool:
        """Whether responses are counts or 0 and 1."""
        return self.family.name not in ("gaussian", "gamma")

    # --- storage ---------------------------------------------------------------------------------------------

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt."""
        mean, factor, inverse = self.posterior
        arrays = {
            "mean_local": mean.local,
            "mean_shared": mean.shared,
            "factor_local": factor.local,
            "factor_cross": factor.cross,
            "factor_shared": factor.shared,
            "inverse_shared": inverse,
            "local_sds": self.local_sds,
            **prior_arrays(self.prior),
        }
        document = {
            "model": "glmm",
            "formula": self.formula,
            "family": self.family.name,
            "link": self.family.link,
            "columns": self.columns.to_dict(),
            "fixed_names": list(self.fixed_names),
            "random_names": list(self.random_names),
            "group_name": self.group_name,
            "group_labels": plain_labels(self.group_labels).tolist(),
            "prior": store_prior(self.prior),
            "num_rows": self.num_rows,
            "notes": list(self.notes),
            "correlated": self.correlated,
            "choice": self.choice,
        }
        return {name: np.asarray(array) for name, array in arrays.items()}, document

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> "MixedFit":
        """Rebuild the model from its stored form, by whichever method it was fitted."""
        from natvi.models.mixed.marginal.posterior import restore_marginal  # which builds on this file
        from natvi.models.mixed.rvb import restore_rvb  # and this one too

        gaussian = cls._restore_gaussian(arrays, document)
        if "rvb" in document:
            return restore_rvb(gaussian, arrays, document)
        return restore_marginal(gaussian, arrays, document) if "marginal" in document else gaussian

    @classmethod
    def _restore_gaussian(cls, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> "MixedFit":
        mean = ArrowVector(arrays["mean_local"], arrays["mean_shared"])  # type: ignore[arg-type]
        factor = ArrowFactor(*(arrays[f"factor_{part}"] for part in ("local", "cross", "shared")))  # type: ignore[arg-type]
        fit = cls(
            formula=document["formula"],
            family=find_family(document["family"], document.get("link")),  # early files name no link
            columns=ColumnRecipe.from_dict(document["columns"]),
            fixed_names=tuple(document["fixed_names"]),
            random_names=tuple(document["random_names"]),
            group_name=document["group_name"],
            group_labels=plain_labels(document["group_labels"]),
            posterior=ArrowPrecision(mean, factor, arrays["inverse_shared"]),  # type: ignore[arg-type]
            local_sds=arrays["local_sds"],
            prior=restore_prior(
                arrays, document["prior"], tuple(document["fixed_names"]), len(document["random_names"])
            ),
            num_rows=document["num_rows"],
            notes=tuple(document["notes"]),
            correlated=document.get("correlated", True),
            choice=document.get("choice", ""),
        )
        fit._check_shapes(arrays)
        return fit

    def _check_shapes(self, arrays: dict[str, np.ndarray]) -> None:
        r, n, g = len(self.random_names), len(self.group_labels), len(self.shared_names())
        expected = {
            "mean_local": (r, n),
            "mean_shared": (g,),
            "factor_local": (r, r, n),
            "factor_cross": (g, r, n),
            "factor_shared": (g, g),
            "inverse_shared": (g, g),
            "local_sds": (r, n),
        }
        for name, shape in expected.items():
            if arrays[name].shape != shape:
                raise ValueError(f"the array {name!r} has shape {arrays[name].shape}, and {shape} is needed")


@jax.jit
def _draw(posterior: ArrowPrecision, keys: jax.Array) -> ArrowVector:
    return jax.lax.map(posterior.sample, keys, batch_size=16)
