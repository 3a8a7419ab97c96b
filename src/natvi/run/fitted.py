"""What every loop hands back: exact or noisy, over rows, groups or batches."""

from typing import Any, NamedTuple

import numpy as np

from natvi.run.outcome import Outcome


class Fitted(NamedTuple):
    """The end of a fit, on the host.

    Attributes:
        gaussian: The approximation.
        elbo: Its lower bound; of a noisy loop the mean of the last window's estimates.
        elbo_se: The standard error of `elbo`, 0 where the bound is exact.
        outcome: How the loop ended.
        trace: The bound after each iteration, or the mean bound of every window.
        steps: The number of steps, those of earlier runs included.
        state: To go on from.
        kept: Of a noisy loop: the recipe's state that is the answer, for models that keep more than a Gaussian.
        watched: What a validation set said of every window; empty where there was none.
    """

    gaussian: Any
    elbo: float
    elbo_se: float
    outcome: Outcome
    trace: np.ndarray
    steps: int
    state: Any
    kept: Any = None
    watched: np.ndarray = np.empty(0)
