"""Answers row by row, some rows at a time: new responses, residuals of all rows, the share of variance explained."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natvi.families.table import Family
from natvi.models.regression.criticism import Drawn, Residuals, find_residuals, replicate_responses
from natvi.models.regression.predict import drawn_means, slices
from natvi.models.regression.rows import Rows
from natvi.x64 import float64


def predictive_columns(drawn: Drawn, trials: np.ndarray | None, prob: float, seed: int) -> Float[np.ndarray, "4 n"]:
    """Return mean, sd and interval of a new response of every row; of trials the successes."""
    tail = 0.5 - prob / 2
    columns = np.empty((4, drawn.covariates.num_rows))
    for own in slices(np.arange(drawn.covariates.num_rows)):
        part = drawn._replace(covariates=drawn.covariates.take(own))
        new = replicate_responses(part, None if trials is None else trials[own], seed)
        columns[:, own] = new.mean(axis=0), new.std(axis=0, ddof=1), *np.quantile(new, [tail, 1 - tail], axis=0)
    return columns


def every_residual(
    drawn: Drawn, rows: Rows, fitted: np.ndarray, typical: Float[np.ndarray, " g"], seed: int
) -> Residuals:
    """Return the residuals of all rows, however many there are."""
    parts = np.empty((3, len(rows.y)))
    for own in slices(np.arange(len(rows.y))):
        part = drawn._replace(covariates=drawn.covariates.take(own))
        parts[:, own] = find_residuals(part, rows.take(own), fitted[own], typical, seed)
    return Residuals(*parts)


class Explained(NamedTuple):
    """Draws of variances between rows: of expectations with and without the groups' effects, and within rows."""

    conditional: np.ndarray
    population: np.ndarray | None
    within: np.ndarray

    def shares(self) -> dict[str, np.ndarray]:
        """Return draws of R²: var(mu) / (var(mu) + mean of var(y | mu)), after Gelman and others (2019)."""
        total = self.conditional + self.within
        if self.population is None:
            return {"R2": self.conditional / total}
        return {"conditional R2": self.conditional / total, "marginal R2": self.population / total}


def explained_variance(family: Family, drawn: Drawn, population: Drawn | None) -> Explained:
    """Return the variances that R² is made of.

    Args:
        family: The response distribution.
        drawn: Draws with the effects of each row's group.
        population: The same draws for rows without random effects, or None in a model without groups.
    """
    mean = _means(family, drawn)
    eta, disp = drawn.predictors()
    with float64():
        within = family.response_variance(jnp.asarray(eta), None if disp is None else jnp.asarray(disp))
        within = np.broadcast_to(np.asarray(within), mean.shape).mean(axis=1)
    without = None if population is None else _means(family, population).var(axis=1, ddof=1)
    return Explained(mean.var(axis=1, ddof=1), without, within)


def _means(family: Family, drawn: Drawn) -> np.ndarray:
    return drawn_means(family, *drawn.predictors())
