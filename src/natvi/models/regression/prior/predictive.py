"""Responses that a model holds possible before it has seen any."""

import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family
from natvi.judge.replicate import draw_responses
from natvi.x64 import float64

FURTHEST = 300.0  # of a predictor: beyond it a count is too large to be drawn


def draw_from_predictors(
    family: Family, eta: np.ndarray, log_dispersion: np.ndarray | None, trials: np.ndarray | None, seed: int
) -> np.ndarray:
    """Draw responses `(s, n)` given predictors `(s, n)`; of trials the successes."""
    limit = FURTHEST if family.link != "identity" else np.inf
    with float64():
        mean = np.asarray(family.mean(jnp.asarray(np.clip(eta, -limit, limit))))
    return draw_responses(family.name, mean, log_dispersion, trials, np.random.default_rng(seed))
