"""Rows of the tidy tables: mean, sd and a central interval."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from natvi.metrics.psis import weighted_quantiles
from natvi.special import ndtri


def interval_table(names: Any, columns: Any, prob: float) -> pd.DataFrame:
    """Return mean, sd and the two ends of a central interval as a table with a line for every name."""
    return pd.DataFrame(dict(zip(("mean", "sd", *interval_names(prob)), columns, strict=True)), index=pd.Index(names))


def gaussian_table(names: Any, mean: np.ndarray, sd: np.ndarray, prob: float) -> pd.DataFrame:
    """Return mean, sd and central interval of Gaussian coordinates."""
    z = ndtri(0.5 + prob / 2)
    return interval_table(names, (mean, sd, mean - z * sd, mean + z * sd), prob)


def weighted_table(
    names: Any, values: Float[np.ndarray, "s k"], weights: Float[np.ndarray, " s"], prob: float
) -> pd.DataFrame:
    """Return mean, sd and central interval of weighted draws."""
    mean = weights @ values
    sd = np.sqrt(weights @ (values - mean) ** 2)
    quantiles = weighted_quantiles(values, weights, [0.5 - prob / 2, 0.5 + prob / 2])
    return interval_table(names, (mean, sd, *quantiles), prob)


def interval_names(prob: float) -> tuple[str, str]:
    """Return the column names of a central interval.

    Example:
        >>> interval_names(0.95)
        ('q2.5', 'q97.5')
    """
    return f"q{100 * (0.5 - prob / 2):.12g}", f"q{100 * (0.5 + prob / 2):.12g}"


def lognormal_row(m: float, v: float, tail: float) -> tuple[float, float, float, float]:
    """Return mean, sd and quantiles of e^x for x ~ N(m, v)."""
    mean = float(np.exp(m + v / 2))
    z = ndtri(1 - tail) * np.sqrt(v)
    return mean, float(mean * np.sqrt(np.expm1(v))), float(np.exp(m - z)), float(np.exp(m + z))
