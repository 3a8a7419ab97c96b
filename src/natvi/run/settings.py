"""Numbers that a user hands to a fit or asks of it, checked before any work is done."""

import math
from typing import Any

import numpy as np

LARGEST_SEED = 2**63 - 1  # what JAX's keys hold


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number, or say what is wrong with it.

    Example:
        >>> check_count("num_samples", 10)
        10
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return int(value)


def is_real(value: Any) -> bool:
    """Whether a value is a real number; yes and no are none.

    Example:
        >>> is_real(0.1), is_real("0.1"), is_real(True)
        (True, False, False)
    """
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_seed(seed: Any) -> int:
    """Return the seed, or say what is wrong with it.

    Example:
        >>> check_seed(20250101)
        20250101
    """
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer) or not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed must be a whole number from 0 to 2**63 - 1, e.g. seed=0; got {seed!r}.")
    return int(seed)


def check_seconds(name: str, value: Any) -> float:
    """Return a time in seconds, zero or more, or say what is wrong with it.

    Example:
        >>> check_seconds("checkpoint_seconds", 2)
        2.0
    """
    if not is_real(value) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a number of seconds, zero or more, e.g. 2.0; got {value!r}.")
    return float(value)
