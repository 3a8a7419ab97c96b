"""A fitted mixed model: names, tables, draws and predictions around its Gaussian."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from natvi.families.table import Family
from natvi.formula.columns import ColumnRecipe, as_frame
from natvi.gaussian import ArrowPrecision
from natvi.models.mixed.draws import arrow_draws
from natvi.models.mixed.groups import group_codes, plain_labels
from natvi.models.mixed.marginal.whole_groups import whole_groups
from natvi.models.mixed.predict import draw_effects, predictor_moments
from natvi.models.mixed.variance import (
    SharedCoordinates,
    component_names,
    fresh_effects,
    precision_factors,
)
from natvi.models.regression.criticism import Drawn
from natvi.models.regression.family.formulas import store_parts
from natvi.models.regression.origin import Origin
from natvi.models.regression.predict import (
    KINDS,
    PROBABILITIES,
    check_word,
    drawn_columns,
    drawn_means,
    gaussian_columns,
    kinds_of_prediction,
)
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.storage import prior_arrays, store_prior
from natvi.models.regression.questions.variance_shares import HasTerms, TermCovariance
from natvi.models.regression.rows import Covariates, Rows, part_of
from natvi.models.regression.tables import gaussian_table, interval_table

LARGEST_DRAW = 2_000_000_000  # bytes
GROUPS = ("known", "new", "population")
PREDICTIVE_DRAWS = 2000


@dataclass(frozen=True, eq=False)
class MixedFit(SharedCoordinates, HasTerms):
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
    rows: Rows | None = None
    choice: str = ""
    origin: Origin | None = None

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

    def term_covariances(self, shared: np.ndarray) -> list[TermCovariance]:
        """Return draws of the covariance of the random effects, in the coordinates of the fit: (W W')^-1."""
        W = precision_factors(len(self.random_names), shared[:, self.omega_start :], self.correlated)
        inverse = np.linalg.inv(W)
        covariance = np.swapaxes(inverse, 1, 2) @ inverse
        return [TermCovariance(self.group_name, slice(None), covariance)]

    @property
    def assumption(self) -> str:
        """What is assumed about the posterior, and may be wrong."""
        return "the Gaussian shape of the random effects"

    def shared_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the shared coordinates (beta, dispersion, omega)."""
        R = np.asarray(self.posterior.inverse_shared)
        return np.asarray(self.posterior.mean.shared), R.T @ R

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

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw fixed effects, variance components and random effects."""
        r, n = self.posterior.mean.local.shape
        if random_effects and 8 * num_samples * r * n > LARGEST_DRAW:
            raise ValueError(
                f"{num_samples} draws of {r * n:,} random effects need {8 * num_samples * r * n / 2**30:.1f} GiB. "
                "Draw fewer, or leave them out with random_effects=False."
            )
        local, shared = self.joint_draws(num_samples, seed, random_effects)
        named = self.named(shared)
        if random_effects:
            local = self.coordinates.effects(local)
            named |= {f"{e}|{self.group_name}": local[:, k] for k, e in enumerate(self.random_names)}
        return named

    def joint_draws(self, num_samples: int, seed: int, keep_local: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw `(s, r, n)` and `(s, g)`, in the coordinates of the fit."""
        return arrow_draws(self.posterior, num_samples, seed, keep_local)

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Return coordinates and dimensions of the random effects."""
        taken = self.group_name in ("chain", "draw", *self.fixed_names, *component_names(self))
        name = f"groups of {self.group_name}" if taken else self.group_name
        dims = {f"{effect}|{self.group_name}": [name] for effect in self.random_names}
        return {name: self.group_labels.tolist()}, dims

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return mean, sd and interval of the linear predictor or the expected response, row by row.

        With groups="known" the rows of a group that the fit has not seen are averaged over fresh random effects, as all
        rows are with groups="new"; the labels of these groups are listed in `table.attrs["new_groups"]`.
        """
        if kind == PROBABILITIES:
            return self.category_table(new_data, groups)
        check_word("kind", kind, kinds_of_prediction(self.family))
        check_word("groups", groups, GROUPS)
        if new_data is None:
            rows, index, new = self.training_rows().covariates, pd.RangeIndex(self.num_rows), []
        else:
            frame = as_frame(new_data)
            rows, index, new = self._columns_of(frame), frame.index, []
            if groups == "known":
                codes, new = group_codes(frame, self.group_name, self.group_labels)
                rows = rows._replace(codes=codes)
        if groups == "population":
            assert rows.Z is not None
            rows = rows._replace(Z=np.zeros_like(rows.Z), codes=np.zeros(rows.num_rows, dtype=int))
        if groups == "new":
            seen = np.zeros(rows.num_rows, dtype=bool)
        else:
            assert rows.codes is not None
            seen = rows.codes < len(self.group_labels)
        columns = np.empty((4, rows.num_rows))
        if seen.any():
            columns[:, seen] = self.known_columns(rows.take(seen), kind, prob)
        if not seen.all():
            columns[:, ~seen] = self._averaged_columns(rows.take(~seen), kind, prob)
        table = interval_table(index, columns, prob)
        table.attrs["new_groups"] = new
        return table

    def known_columns(self, rows: Covariates, kind: str, prob: float) -> np.ndarray:
        """Return mean, sd and interval of predictor or expected response of rows in known groups, `(4, N)`."""
        own = kind not in KINDS  # a number that has a predictor of its own
        if own or (kind != "link" and self.family.mean_given is not None):
            drawn = self.draws_for(rows, PREDICTIVE_DRAWS, 0)
            return drawn_columns(self.family, drawn.covariates, drawn.shared, drawn.local, kind, prob)
        return gaussian_columns(
            self.family, *predictor_moments(self.posterior, part_of(self.family, rows, 0)), kind, prob
        )

    def _averaged_columns(self, rows: Covariates, kind: str, prob: float) -> np.ndarray:
        """Return the columns for rows of groups never seen: draws of (beta, omega) and of fresh random effects."""
        rng = np.random.default_rng(0)
        shared = self.shared_draws(PREDICTIVE_DRAWS, rng)
        one = rows._replace(codes=np.zeros(rows.num_rows, dtype=int))
        return drawn_columns(self.family, one, shared, fresh_effects(self, shared, 1, rng), kind, prob)

    # --- the fit against data --------------------------------------------------------------------------------

    def _columns_of(self, frame: pd.DataFrame) -> Covariates:
        """Return new rows without their groups."""
        X, Z, offset = self.columns.apply(frame)
        return Covariates(self.coordinates.columns(X), offset, self.coordinates.random_columns(Z))

    def covariates_of(self, data: Any) -> Covariates:
        """Return new rows in the coordinates of the fit, without their responses."""
        frame = as_frame(data)
        rows = self._columns_of(frame)
        return rows._replace(codes=group_codes(frame, self.group_name, self.group_labels)[0])

    def covariates_for(self, data: Any, groups: str) -> Covariates:
        """Return rows in the groups that the fit knows, in one new group, or without effects of groups."""
        check_word("groups", groups, GROUPS)
        if groups == "known":
            return self.training_rows().covariates if data is None else self.covariates_of(data)
        rows = self.training_rows().covariates if data is None else self._columns_of(as_frame(data))
        assert rows.Z is not None
        if groups == "new":
            return rows._replace(codes=np.full(rows.num_rows, len(self.group_labels)))
        return rows._replace(Z=np.zeros_like(rows.Z), codes=np.zeros(rows.num_rows, dtype=int))

    @property
    def has_groups(self) -> bool:
        """Rows have effects of groups."""
        return True

    def block_values(self, rows: Rows, drawn: Drawn, codes: np.ndarray, num_blocks: int) -> np.ndarray:
        """Return the log-likelihood of every block of whole groups, their random effects integrated out."""
        return whole_groups(self, rows, drawn, codes, num_blocks)

    def draws(self, num_samples: int, seed: int) -> np.ndarray:
        """Draw the shared coordinates, those of `sample`."""
        return self.joint_draws(num_samples, seed, False)[1]

    def draws_for(self, covariates: Covariates, num_draws: int, seed: int) -> Drawn:
        """Draw shared coordinates and random effects; groups that the fit has not seen get fresh effects."""
        assert covariates.codes is not None
        r, n = self.local_sds.shape
        codes, local, shared = draw_effects(self.joint_draws, (r, n), covariates.codes, num_draws, seed)
        fresh = int(covariates.codes.max(initial=-1)) + 1 - n
        if fresh > 0:
            more = fresh_effects(self, shared, fresh, np.random.default_rng(seed))
            local = np.concatenate([local, more], axis=-1)
        return Drawn(self.family, covariates._replace(codes=codes), shared, local)

    def fitted_values(self, drawn: Drawn) -> np.ndarray:
        """Return the expected response of every row, given its group's effects: the mean over draws."""
        return drawn_means(self.family, *drawn.predictors()).mean(axis=0)

    @property
    def loo_cause(self) -> str:
        """A row that is alone in its group moves that group's effect much."""
        return ", often the effect of a small group"

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
            "family": self.family.full_name,
            "link": self.family.link,
            "parts": store_parts(self.family),
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
