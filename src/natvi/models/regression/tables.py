"""Rows of the tidy tables: mean, sd and a central interval."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri


def gaussian_table(names: Any, mean: np.ndarray, sd: np.ndarray, prob: float) -> pd.DataFrame:
    """Return mean, sd and central interval of Gaussian coordinates."""
    z = ndtri(0.5 + prob / 2)
    low, high = interval_names(prob)
    return pd.DataFrame({"mean": mean, "sd": sd, low: mean - z * sd, high: mean + z * sd}, index=pd.Index(names))


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
