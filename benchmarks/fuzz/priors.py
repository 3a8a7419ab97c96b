"""The prior of a model without groups as numbers, for the second method."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class FlatPrior(NamedTuple):
    """Normals on beta' with beta = map beta', and the log-density of the log dispersion, which comes last if any."""

    map: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    log_dispersion: Callable[[np.ndarray], np.ndarray]


def read_prior(model: Any) -> FlatPrior:
    """Read the prior of a model made by `natvi.glm`."""
    prior, p = model.prior, model.rows.X.shape[1]
    mean, sd = np.array(prior.mean, float), np.array(prior.sd, float)

    def log_dispersion(log_disp: np.ndarray) -> np.ndarray:
        return -0.5 * ((log_disp - mean[-1]) / sd[-1]) ** 2

    return FlatPrior(np.eye(p), mean, sd, log_dispersion)
