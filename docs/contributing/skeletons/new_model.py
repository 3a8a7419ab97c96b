"""The skeleton of a new model: rates of events at several sites, from counts and exposures.

y_i ~ Poisson(exposure_i exp(theta_i)), theta_i ~ N(0, sd^2). A model is three things: a door that checks what came and
builds a target, a loop that climbs, and what the result asks of it (`natvi.result.model.FittedModel`). Copy it to a
folder of its own in src/natvi/models/.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.stats

from natvi.families.table import FAMILIES
from natvi.result import Result
from natvi.run.clock import Stopwatch
from natvi.run.exact.rows import climb_rows
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.x64 import float64, to_host


def fit_rates(counts: pd.Series, exposure: pd.Series, sd: float = 10.0) -> Result:
    """Fit the rate of every site, and return a result as every door does."""
    watch = Stopwatch()
    if not counts.index.equals(exposure.index) or (exposure <= 0).any():
        raise ValueError("counts and exposure need the same sites, and every exposure must be positive.")
    with float64():  # the door computes in double precision, whatever the process has set
        k = len(counts)
        rows = Observations(jnp.eye(k), jnp.asarray(counts, float), offset=jnp.log(jnp.asarray(exposure, float)))
        target = DesignRows(rows, IndependentNormal.around_zero(k, sd), FAMILIES["poisson"], k)
        fitted = climb_rows(target, "diagonal")
        mean, sds = to_host((fitted.gaussian.mean, fitted.gaussian.marginal_sds()))  # what leaves, leaves as NumPy
    model = RatesFit(tuple(map(str, counts.index)), mean, sds)
    return Result(
        model=model,
        method="gva",
        structure="diagonal",
        outcome=fitted.outcome,
        elbo=fitted.elbo,
        elbo_se=fitted.elbo_se,
        seconds=watch.read(),
        trace=fitted.trace,
        state=fitted.state,
        steps=fitted.steps,
    )


@dataclass(frozen=True)
class RatesFit:
    """What is known of the rates, as the result asks for it: names, tables, draws, itself as plain data."""

    names: tuple[str, ...]
    mean: np.ndarray
    sds: np.ndarray

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        return (("model", f"log rates of {len(self.names)} sites, poisson counts"),)

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return tidy tables of parameters, by title."""
        low, high = (scipy.stats.norm.ppf(q, self.mean, self.sds) for q in (0.5 - prob / 2, 0.5 + prob / 2))
        columns = {"mean": self.mean, "sd": self.sds, "q2.5": low, "q97.5": high}
        return {"Log rates": pd.DataFrame(columns, index=list(self.names))}

    def random_effects(self, prob: float) -> pd.DataFrame:
        """Return no random effects."""
        return pd.DataFrame()

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Return draws by name."""
        z = np.random.default_rng(seed).standard_normal((num_samples, len(self.names)))
        return dict(zip(self.names, (self.mean + self.sds * z).T, strict=True))

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Return coordinates and dimensions: every name is a scalar."""
        return {}, {}

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Refuse: there is nothing to predict but the rates."""
        raise ValueError("Rates are not predicted for new data; read them in summary().")

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a document from which the model can be rebuilt."""
        return {"mean": self.mean, "sds": self.sds}, {"model": "rates", "names": list(self.names)}
