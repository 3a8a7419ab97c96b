"""Responses that a model holds possible before it has seen any."""

from abc import ABC, abstractmethod

import numpy as np

from natvi.models.regression.criticism import Drawn, draw_rows
from natvi.run.settings import check_count, check_seed

FURTHEST = 300.0  # of a predictor: beyond it a count is too large to be drawn


class DrawsFromPrior(ABC):
    """A regression model with its data, which can be drawn from its prior."""

    trials: np.ndarray | None

    @abstractmethod
    def prior_draws(self, num_draws: int, rng: np.random.Generator) -> Drawn:
        """Draw all parameters from the prior, with the rows of the data."""

    def prior_predictive(self, num_draws: int = 200, seed: int = 0) -> np.ndarray:
        """Draw responses from the prior, `(num_draws, n)`: what the model holds possible before it has seen any.

        Args:
            num_draws: The number of draws, each with its own parameters.
            seed: The same seed gives the same draws.

        Returns:
            A response for every draw and row of the data; of trials the successes.

        Example:
            >>> import natvi
            >>> model = natvi.glmm("Reaction ~ Days + (Days | Subject)", natvi.data.load_sleepstudy())
            >>> model.prior_predictive(5).shape[0]
            5
        """
        num_draws, seed = check_count("num_draws", num_draws), check_seed(seed)
        drawn = self.prior_draws(num_draws, np.random.default_rng(seed))
        (eta, disp), family = drawn.predictors(), drawn.family
        limit = FURTHEST if family.link != "identity" else np.inf
        eta, rng = np.clip(eta, -limit, limit), np.random.default_rng(seed)
        return draw_rows(family, eta, disp, self.trials, rng)
