"""A fitted mixed model whose random effects are not Gaussian: tables and predictions come from kept draws."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from natvi.models.mixed.posterior import MixedFit
from natvi.models.regression.predict import drawn_columns
from natvi.models.regression.rows import Covariates
from natvi.models.regression.tables import interval_table

MOST_KEPT, LEAST_KEPT, KEPT_CELLS = 1000, 200, 5e6  # draws of the random effects behind tables and predictions


@dataclass(frozen=True, eq=False, kw_only=True)
class DrawnFit(MixedFit):
    """What fits have in common that know their random effects by `joint_draws` only."""

    @cached_property
    def _kept(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws of random effects and shared coordinates behind tables and predictions."""
        size = int(np.clip(KEPT_CELLS / self.local_sds.size, LEAST_KEPT, MOST_KEPT))
        return self.joint_draws(size, 0, True)

    def local_table(self, prob: float) -> pd.DataFrame:
        """Return mean, sd and interval of the random effects, effect after effect."""
        local = self.coordinates.effects(self._kept[0])
        quantiles = np.quantile(local, [0.5 - prob / 2, 0.5 + prob / 2], axis=0)
        parts = (local.mean(axis=0), local.std(axis=0, ddof=1), *quantiles)
        return interval_table(range(local[0].size), [part.ravel() for part in parts], prob)

    def known_columns(self, rows: Covariates, kind: str, prob: float) -> np.ndarray:
        """Return mean, sd and interval of predictor or expected response of rows in known groups, `(4, N)`."""
        local, shared = self._kept
        return drawn_columns(self.family, rows, shared, local, kind, prob)
