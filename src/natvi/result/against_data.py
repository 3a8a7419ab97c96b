"""The part of a result that holds a fit against data; for models that hold rows."""

from typing import Any

import numpy as np
import pandas as pd

from natvi.judge.sensitivity import sensitivity_table
from natvi.result.core import Core
from natvi.result.model import HoldsRows, ask
from natvi.run.settings import check_count, check_seed
from natvi.show import glm_plots


class AgainstData(Core):
    """Replicated responses, log-likelihoods, cross-validation, residuals, and the weight of the prior."""

    def prior_sensitivity(self, num_draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Return how much each parameter would move if the prior, or the likelihood, counted a little more.

        Power-scaling sensitivity (Kallioinen et al. 2024), computed by ArviZ from draws: values from 0.05 on mean that
        the component matters for the parameter. The prior is that of all parameters but the random effects.

        Args:
            num_draws: The number of draws.
            seed: The same seed gives the same answer.

        Returns:
            A frame with columns prior, likelihood and diagnosis, a line for each parameter but the random effects.
        """
        model = ask(self.model, HoldsRows)
        num_draws, seed = check_draws(num_draws, seed)
        draws = self.model.sample(num_draws, seed, False)
        likelihood = model.log_likelihood(num_draws, seed).sum(axis=1)
        return sensitivity_table(draws, model.log_prior(num_draws, seed), likelihood)

    def posterior_predictive(self, num_draws: int = 1000, seed: int = 0, data: Any = None) -> np.ndarray:
        """Draw replicated responses `(num_draws, n)`; of binomial trials the successes.

        Args:
            num_draws: The number of draws, each with its own parameters.
            seed: The same seed gives the same draws.
            data: Rows other than the training data.
        """
        return ask(self.model, HoldsRows).posterior_predictive(*check_draws(num_draws, seed), data)

    def log_likelihood(self, num_draws: int = 1000, seed: int = 0, data: Any = None) -> np.ndarray:
        """Return log p(y_i | theta) for every draw and row, `(num_draws, n)`, times the row's weight.

        Args:
            num_draws: The number of draws, those of `sample` with the same seed.
            seed: The same seed gives the same draws.
            data: Rows other than the training data, their responses included.
        """
        return ask(self.model, HoldsRows).log_likelihood(*check_draws(num_draws, seed), data)

    def loo(self, num_draws: int = 2000, seed: int = 0, data: Any = None) -> Any:
        """Return leave-one-out cross-validation: `elpd`, `se`, `p_loo`, and `elpd_each`, `pareto_k` of every row."""
        return ask(self.model, HoldsRows).loo(*check_draws(num_draws, seed), data)

    def plot_residuals(self, seed: int = 0, data: Any = None) -> Any:
        """Plot Pearson residuals against fitted values, and quantile residuals against the normal distribution."""
        model = ask(self.model, HoldsRows)
        return glm_plots.residuals(*model.residuals(check_seed(seed), data), discrete=model.is_discrete())

    def plot_predictive(self, num_draws: int = 200, seed: int = 0, data: Any = None, ax: Any = None) -> Any:
        """Plot the responses beside replicated ones: bars for counts and binary responses, densities for others."""
        model = ask(self.model, HoldsRows)
        replicated = self.posterior_predictive(num_draws, seed, data)
        plot = glm_plots.predictive_bars if model.is_discrete() else glm_plots.predictive_densities
        return plot(model.observed(data), replicated, ax)


def check_draws(num_draws: Any, seed: Any) -> tuple[int, int]:
    """Return the number of draws and the seed, or say what is wrong with them."""
    return check_count("num_draws", num_draws), check_seed(seed)
