"""A mixed model fitted by the marginal method: weighted draws of the shared coordinates, exact ones of the others."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from natvi.metrics.psis import resample
from natvi.models.mixed.conditional import ConditionalSampler
from natvi.models.mixed.drawn import DrawnFit
from natvi.models.mixed.posterior import MixedFit
from natvi.models.mixed.variance import component_draws, component_names
from natvi.models.regression.tables import weighted_table

FEW = 1000  # draws for which those of the tables do


@dataclass(frozen=True, eq=False, kw_only=True)
class MarginalFit(DrawnFit):
    """The posterior as draws; `posterior` is the Gaussian from which the search started.

    Attributes:
        shared: Draws of the shared coordinates `(s, g)`.
        weights: Of these draws; they sum to one.
        sampler: Draws the random effects given the shared coordinates.
        pareto_k: The tail of the weights.
        more: Makes further draws, weights and all, for whoever asks for more than a thousand.
    """

    shared: np.ndarray
    weights: np.ndarray
    sampler: ConditionalSampler
    pareto_k: float
    more: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None

    @cached_property
    def _pool(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws and weights behind more than a thousand draws."""
        return (self.shared, self.weights) if self.more is None else self.more()

    @property
    def effective(self) -> float:
        """How many equally weighted draws the weighted ones are worth."""
        return float(1.0 / np.sum(self.weights**2))

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        draws = (
            f"{len(self.weights):,} weighted draws, as good as {self.effective:,.0f} independent ones; random effects "
            "drawn exactly given them"
        )
        return (*super().headline, ("draws", draws))

    def shared_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the weighted draws."""
        mean = self.weights @ self.shared
        errors = self.shared - mean
        return mean, (errors * self.weights[:, None]).T @ errors

    def shared_draws(self, num_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Return equally weighted draws of the shared coordinates."""
        shared, weights = self._pool if num_draws > FEW else (self.shared, self.weights)
        return shared[resample(weights, num_draws, rng)]

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the fixed effects and the variance components, from the weighted draws."""
        fixed = self.coordinates.coefficients(self.shared[:, : len(self.fixed_names)])
        components = component_draws(self, self.shared)
        return {
            "coefficients": weighted_table(self.fixed_names, fixed, self.weights, prob),
            "variance_components": weighted_table(component_names(self), components, self.weights, prob),
        }

    def joint_draws(self, num_samples: int, seed: int, keep_local: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw `(s, r, n)` and `(s, g)`: equally weighted shared coordinates, then the random effects given them."""
        shared = self.shared_draws(num_samples, np.random.default_rng(seed))
        local = self.sampler.draw(shared, seed) if keep_local else np.zeros((0, *self.local_sds.shape))
        return local, shared

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document; the rows of the data are among them, which conditional draws need."""
        arrays, document = super().store()
        rows, rest = self.sampler.store()
        # those behind more than a thousand too, so that a loaded fit gives the same
        pool_shared, pool_weights = self._pool
        draws = {"draws_shared": self.shared, "draws_weights": self.weights}
        if len(pool_weights) > len(self.weights):
            draws |= {"pool_shared": pool_shared, "pool_weights": pool_weights}
        return {**arrays, **rows, **draws}, {**document, "marginal": {**rest, "pareto_k": self.pareto_k}}


def restore_marginal(gaussian: MixedFit, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> MarginalFit:
    """Rebuild a marginal fit around the Gaussian that was stored with it."""
    shared, weights = arrays["draws_shared"], arrays["draws_weights"]
    if shared.shape != (len(weights), len(gaussian.shared_names())):
        raise ValueError(f"the array 'draws_shared' has shape {shared.shape}, which does not fit the model")
    if ("pool_shared" in arrays) != ("pool_weights" in arrays):
        raise ValueError("of the arrays 'pool_shared' and 'pool_weights' one is missing")
    pool = (arrays["pool_shared"], arrays["pool_weights"]) if "pool_shared" in arrays else None
    if pool is not None and pool[0].shape != (len(pool[1]), shared.shape[1]):
        raise ValueError(f"the array 'pool_shared' has shape {pool[0].shape}, which does not fit the model")
    sampler = ConditionalSampler.restore(arrays, document["marginal"], gaussian.family, gaussian.correlated)
    if (sampler.near.shape[0], len(sampler.place)) != gaussian.local_sds.shape:
        raise ValueError("the stored rows do not belong to the groups of the model")
    return MarginalFit(
        **gaussian.parts(),
        shared=shared,
        weights=weights,
        sampler=sampler,
        pareto_k=float(document["marginal"]["pareto_k"]),
        more=None if pool is None else lambda: pool,
    )
