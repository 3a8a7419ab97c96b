"""A fitted model with crossed or nested factors: names, tables, draws and predictions."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from natvi.families.table import Family
from natvi.formula.columns import ColumnRecipe, as_frame
from natvi.formula.grouping.levels import level_labels
from natvi.models.mixed.crossed.components import FittedTerm
from natvi.models.mixed.crossed.leave import left_out_values
from natvi.models.mixed.groups import codes_of, plain_labels
from natvi.models.regression.criticism import Drawn
from natvi.models.regression.family.extras import natural, shown
from natvi.models.regression.names import extra_names, shown_names
from natvi.models.regression.origin import Origin
from natvi.models.regression.predict import KINDS, PROBABILITIES, check_word, drawn_columns, drawn_means
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.storage import prior_arrays, store_prior
from natvi.models.regression.questions.variance_shares import HasTerms, TermCovariance
from natvi.models.regression.rows import Covariates, Rows
from natvi.models.regression.tables import gaussian_table, interval_table

GROUPS = ("known", "new", "population")
LARGEST_DRAW = 2_000_000_000  # bytes
MOST_KEPT, LEAST_KEPT, KEPT_CELLS = 1000, 200, 5e7  # draws of all effects behind predictions


@dataclass(frozen=True, eq=False, kw_only=True)
class CrossedFit(HasTerms):
    """The posterior of a model with several random terms; how it is known, subclasses say.

    `effect_mean` and `effect_sd` hold all effects in the user's units, in the order of the flat vector.
    """

    formula: str
    family: Family
    columns: ColumnRecipe
    fixed_names: tuple[str, ...]
    terms: tuple[FittedTerm, ...]
    prior: Prior
    num_rows: int
    notes: tuple[str, ...]
    effect_mean: np.ndarray
    effect_sd: np.ndarray
    rows: Rows | None = None
    choice: str = ""
    origin: Origin | None = None

    def parts(self) -> dict[str, Any]:
        """Return the fields that every such fit has, for one that is built around this one."""
        return {field.name: getattr(self, field.name) for field in fields(CrossedFit)}

    # --- what a method adds ----------------------------------------------------------------------------------

    @abstractmethod
    def joint_draws(self, num_samples: int, seed: int, keep_effects: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw all effects `(s, u)` and the shared coordinates `(s, g)`, in the coordinates of the fit."""

    @abstractmethod
    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the fixed effects and the variance components."""

    # --- names -----------------------------------------------------------------------------------------------

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        factors = {term.group: term.num_levels for term in self.terms}
        groups = ", ".join(f"{count:,} levels of {name}" for name, count in factors.items())
        what = "binomial response (proportion of successes)" if self.family.name == "binomial" else ""
        lines = [
            ("model", f"{self.formula}, {what or self.family.name + ' response'}, {self.family.link} link"),
            ("data", f"{self.num_rows:,} rows, {groups}"),
            ("prior", self.prior.description),
        ]
        lines += [("choice", self.choice)] if self.choice else []
        return (*lines, *(("note", note) for note in self.notes))

    def shared_names(self) -> list[str]:
        """Return a readable name of every shared coordinate."""
        return [*self.fixed_names, *self.dispersion_position(), *(n for t in self.terms for n in t.shared_names())]

    def dispersion_position(self) -> dict[str, int]:
        """Return where the log dispersion stands among the shared coordinates, by its name; empty without one."""
        names = extra_names(self.family, self.fixed_names)
        return {name: len(self.fixed_names) + k for k, name in enumerate(names)}

    def log_sd_positions(self) -> dict[str, int]:
        """Return where minus the log sds stand among the shared coordinates."""
        return {name: at for term in self.terms for name, at in term.log_sd_positions().items()}

    def component_names(self) -> list[str]:
        """Return the names of the variance components, in the order of `component_draws`."""
        return [*(n for t in self.terms for n in t.component_names), *shown_names(self.family, self.fixed_names)]

    def component_draws(self, shared: np.ndarray) -> np.ndarray:
        """Map draws of the shared coordinates to sds, correlations and the dispersion."""
        M = self.coordinates.random
        columns = [term.components(shared, M) for term in self.terms]
        columns.append(shown(self.family.extras, shared[:, list(self.dispersion_position().values())]))
        return np.concatenate(columns, axis=1)

    def readings(self, shared: np.ndarray) -> np.ndarray:
        """Map draws of the shared coordinates to what the tables show."""
        fixed = self.coordinates.coefficients(shared[:, : len(self.fixed_names)])
        return np.concatenate([fixed, self.component_draws(shared)], axis=1)

    # --- random effects --------------------------------------------------------------------------------------

    def random_effects(self, prob: float) -> pd.DataFrame:
        """Return mean, sd and interval of every effect of every level of every term."""
        table = gaussian_table(range(len(self.effect_mean)), self.effect_mean, self.effect_sd, prob)
        parts = []
        for term in self.terms:
            own = table.iloc[term.own].copy()
            own.insert(0, "group", term.group)
            own.insert(1, "level", np.tile(np.asarray(term.labels, dtype=object), term.r))
            own.insert(2, "effect", np.repeat(term.names, term.num_levels))
            parts.append(own)
        return pd.concat(parts, ignore_index=True)

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw fixed effects, variance components and random effects."""
        size = 8 * num_samples * len(self.effect_mean)
        if random_effects and size > LARGEST_DRAW:
            raise ValueError(
                f"{num_samples} draws of {len(self.effect_mean):,} random effects need {size / 2**30:.1f} GiB. Draw "
                "fewer, or leave them out with random_effects=False."
            )
        flat, shared = self.joint_draws(num_samples, seed, random_effects)
        named = dict(zip([*self.fixed_names, *self.component_names()], self.readings(shared).T, strict=True))
        own = zip(self.family.extras, self.dispersion_position().items(), strict=True)
        named |= {name: natural(extra, shared[:, at]) for extra, (name, at) in own}
        if random_effects:
            for term in self.terms:
                effects = term.effects(flat, self.coordinates.random)
                named |= {f"{name}|{term.group}": effects[:, k] for k, name in enumerate(term.names)}
        return named

    def term_covariances(self, shared: np.ndarray) -> list[TermCovariance]:
        """Return draws of every term's covariance; terms of one factor are told apart by their effects."""
        groups = [term.group for term in self.terms]
        names = [t.group if groups.count(t.group) == 1 else f"{' + '.join(t.names)}|{t.group}" for t in self.terms]
        pairs = zip(names, self.terms, strict=True)
        return [TermCovariance(name, term.columns_of_Z, term.covariances(shared)) for name, term in pairs]

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Return coordinates and dimensions of the random effects."""
        taken = {"chain", "draw", *self.fixed_names, *self.component_names()}
        coords, dims = {}, {}
        for term in self.terms:
            name = f"groups of {term.group}" if term.group in taken else term.group
            coords[name] = plain_labels(term.labels).tolist()
            dims |= {f"{effect}|{term.group}": [name] for effect in term.names}
        return coords, dims

    # --- rows ------------------------------------------------------------------------------------------------

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return mean, sd and interval of the linear predictor or the expected response, row by row.

        With groups="known" a level that the fit has not seen has a fresh effect, factor by factor; the labels of these
        levels are listed by factor in `table.attrs["new_groups"]`.
        """
        if kind == PROBABILITIES:
            return self.category_table(new_data, groups)
        check_word("kind", kind, KINDS)
        rows, index, new = self.covariates_for(new_data, groups), pd.RangeIndex(self.num_rows), {}
        if new_data is not None:
            frame = as_frame(new_data)
            index = frame.index
            new = self._unseen(frame) if groups == "known" else {}
        drawn = self._drawn(rows, self._kept, 0)
        table = interval_table(
            index, drawn_columns(self.family, drawn.covariates, drawn.shared, drawn.local, kind, prob), prob
        )
        table.attrs["new_groups"] = new
        return table

    @cached_property
    def _kept(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws of effects and shared coordinates behind predictions."""
        size = int(np.clip(KEPT_CELLS / max(len(self.effect_mean), 1), LEAST_KEPT, MOST_KEPT))
        return self.joint_draws(size, 0, True)

    def _columns_of(self, frame: pd.DataFrame) -> Covariates:
        X, Z, offset = self.columns.apply(frame)
        return Covariates(self.coordinates.columns(X), offset, self.coordinates.random_columns(Z))

    def _codes(self, frame: pd.DataFrame) -> Iterator[tuple[np.ndarray, list[Any]]]:
        """Yield each term's level of every row, and the labels of levels never seen."""
        for term in self.terms:
            yield codes_of(level_labels(frame, term.columns), term.group, term.labels)

    def _unseen(self, frame: pd.DataFrame) -> dict[str, list[Any]]:
        found = zip(self.terms, self._codes(frame), strict=True)
        return {term.group: new for term, (_, new) in found if new}

    def covariates_of(self, data: Any) -> Covariates:
        """Return new rows in the coordinates of the fit, without their responses; codes hold a level of every term."""
        frame = as_frame(data)
        codes = np.stack([codes for codes, _ in self._codes(frame)], axis=1)
        return self._columns_of(frame)._replace(codes=codes)

    def covariates_for(self, data: Any, groups: str) -> Covariates:
        """Return rows in the levels that the fit knows, in one new level of every factor, or without effects."""
        check_word("groups", groups, GROUPS)
        if groups == "known":
            return self.training_rows().covariates if data is None else self.covariates_of(data)
        rows = self.training_rows().covariates if data is None else self._columns_of(as_frame(data))
        assert rows.Z is not None
        if groups == "new":
            return rows._replace(codes=np.tile([term.num_levels for term in self.terms], (rows.num_rows, 1)))
        zeros = np.zeros((rows.num_rows, len(self.terms)), dtype=np.int64)
        return rows._replace(Z=np.zeros_like(rows.Z), codes=zeros)

    @property
    def has_groups(self) -> bool:
        """Rows have effects of levels."""
        return True

    def draws(self, num_samples: int, seed: int) -> np.ndarray:
        """Draw the shared coordinates, those of `sample`."""
        return self.joint_draws(num_samples, seed, False)[1]

    def draws_for(self, covariates: Covariates, num_draws: int, seed: int) -> Drawn:
        """Draw shared coordinates and effects; levels that the fit has not seen get fresh effects."""
        return self._drawn(covariates, self.joint_draws(num_draws, seed, True), seed)

    def _drawn(self, covariates: Covariates, draws: tuple[np.ndarray, np.ndarray], seed: int) -> Drawn:
        assert covariates.codes is not None
        flat, shared = draws
        rng, codes, pieces, after = np.random.default_rng(seed), [], [flat], flat.shape[1]
        fresh: dict[str, int] = {}
        for k, term in enumerate(self.terms):
            own = covariates.codes[:, k]
            count = fresh.setdefault(term.group, max(0, int(own.max(initial=-1)) + 1 - term.num_levels))
            codes.append(term.flat_codes(own, after, count))
            if count:
                pieces.append(term.fresh(shared, count, rng))
                after += term.r * count
        local = np.concatenate(pieces, axis=1)[:, None]
        return Drawn(self.family, covariates._replace(codes=np.concatenate(codes, axis=1)), shared, local)

    def block_values(self, rows: Rows, drawn: Drawn, codes: np.ndarray, num_blocks: int) -> np.ndarray:
        """Return the log-likelihood of every block of rows, effects that no other block knows of integrated out."""
        found = left_out_values(self.terms, rows, drawn, codes, num_blocks)
        return super().block_values(rows, drawn, codes, num_blocks) if found is None else found

    def fitted_values(self, drawn: Drawn) -> np.ndarray:
        """Return the expected response of every row, given its levels' effects: the mean over draws."""
        return drawn_means(self.family, *drawn.predictors()).mean(axis=0)

    @property
    def loo_cause(self) -> str:
        """A row that is alone in a level moves that level's effect much."""
        return ", often the effect of a level with few rows"

    # --- storage ---------------------------------------------------------------------------------------------

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt."""
        document = {
            "model": "glmm_crossed",
            "formula": self.formula,
            "family": self.family.full_name,
            "link": self.family.link,
            "columns": self.columns.to_dict(),
            "fixed_names": list(self.fixed_names),
            "terms": [term.store() | {"labels": plain_labels(term.labels).tolist()} for term in self.terms],
            "prior": store_prior(self.prior),
            "num_rows": self.num_rows,
            "notes": list(self.notes),
            "choice": self.choice,
        }
        arrays = {"effect_mean": self.effect_mean, "effect_sd": self.effect_sd, **prior_arrays(self.prior)}
        return arrays, document
