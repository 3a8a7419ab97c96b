"""How much each parameter would move if the prior, or the likelihood, counted a little more: power-scaling.

Kallioinen et al. (2024): the posterior is weighted towards prior^a or likelihood^a for a slightly above and below one,
and the distance between the two, per unit of log2 a, is the sensitivity. ArviZ computes it.
"""

from typing import Any

import numpy as np
import pandas as pd

ALPHAS = (0.99, 1.01)
INFORMATIVE = 0.05  # the sensitivity from which a component matters


def sensitivity_table(draws: dict[str, np.ndarray], log_prior: np.ndarray, log_likelihood: np.ndarray) -> pd.DataFrame:
    """Return the sensitivity of every parameter to prior and likelihood, and what that means.

    Args:
        draws: Equally weighted draws of every parameter, by name.
        log_prior: The log prior density of every draw.
        log_likelihood: The log-likelihood of every draw, all rows together.
    """
    weights = [_weights(component) for component in (log_prior, log_likelihood)]
    rows = {name: [_sensitivity(values, *pair) for pair in weights] for name, values in draws.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["prior", "likelihood"])
    table["diagnosis"] = [_diagnose(prior, likelihood) for prior, likelihood in rows.values()]
    return table


def _weights(component: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for alpha in ALPHAS:
        logs = np.asarray(_array_stats().power_scale_lw(component[None], alpha=alpha, axis=[0, 1]))
        weights = np.exp(logs - logs.max())
        found.append(weights / weights.sum())
    return found[0], found[1]


def _sensitivity(values: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    return float(_array_stats().power_scale_sense(values[None], lower, upper, *ALPHAS, chain_axis=0, draw_axis=1))


def _array_stats() -> Any:
    from arviz_stats.base import array_stats  # only where it is asked for: importing it takes time

    return array_stats


def _diagnose(prior: float, likelihood: float) -> str:
    if prior >= INFORMATIVE and likelihood >= INFORMATIVE:
        return "prior and data contradict each other, or both matter"
    if prior >= INFORMATIVE:
        return "the prior decides: the data say little"
    return "good"
