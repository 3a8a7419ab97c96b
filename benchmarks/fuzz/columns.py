"""Columns as users bring them: ordinary ones, and those that break software."""

from collections.abc import Callable

import numpy as np

Generator = np.random.Generator

# name -> (rows, generator) -> values
ORDINARY: dict[str, Callable[[int, Generator], np.ndarray]] = {
    "standard": lambda n, rng: rng.standard_normal(n),
    "zero or one": lambda n, rng: rng.permutation(np.arange(n) % 2).astype(float),
    "skewed": lambda n, rng: rng.lognormal(0.0, 0.7, n),
    "years": lambda n, rng: rng.integers(2000, 2025, n).astype(float),
    "percent": lambda n, rng: rng.uniform(0.0, 100.0, n),
}
ODD: dict[str, Callable[[int, Generator], np.ndarray]] = {
    "huge": lambda n, rng: 1e9 * rng.standard_normal(n),
    "tiny": lambda n, rng: 1e-9 * rng.standard_normal(n),
    "far from zero": lambda n, rng: 1e6 + rng.standard_normal(n),
    "very far from zero": lambda n, rng: 1e9 + rng.standard_normal(n),
    "heavy tails": lambda n, rng: rng.standard_t(1.5, n),
    "one row apart": lambda n, rng: (np.arange(n) == rng.integers(n)).astype(float),
    "constant": lambda n, rng: np.full(n, 7.0),
    "all zero": lambda n, rng: np.zeros(n),
    "nearly constant": lambda n, rng: 5.0 + 1e-10 * rng.standard_normal(n),
    "whole numbers": lambda n, rng: rng.integers(-3, 4, n).astype(np.int64),
}


def draw_column(n: int, odd: bool, rng: Generator) -> tuple[str, np.ndarray]:
    """Return the name of a kind of column, and values."""
    kinds = ODD if odd else ORDINARY
    name = str(rng.choice(list(kinds)))
    return name, kinds[name](n, rng)


def companion(values: np.ndarray, rng: Generator) -> tuple[str, np.ndarray]:
    """Return a column that repeats another one, exactly or nearly."""
    spread = float(np.std(values)) or 1.0
    kinds = {
        "a copy": values.astype(float),
        "a multiple, shifted": 2.0 * values + 3.0,
        "nearly a copy": values + 1e-6 * spread * rng.standard_normal(len(values)),
        "correlated 0.99": values + 0.14 * spread * rng.standard_normal(len(values)),
    }
    name = str(rng.choice(list(kinds)))
    return name, kinds[name]


def draw_factor(n: int, levels: int, rng: Generator) -> np.ndarray:
    """Return labels, every level at least once where there are rows enough."""
    return rng.permutation(np.array(list("abcdefgh"))[np.arange(n) % levels])


def standardise(values: np.ndarray) -> np.ndarray:
    """Return values with mean 0 and sd 1; zeros for a column that does not vary."""
    finite = np.where(np.isfinite(values), values, np.nan)
    if np.all(np.isnan(finite)):
        return np.zeros(len(values))
    centred = np.nan_to_num(finite - np.nanmean(finite))
    spread = np.std(centred)
    return np.clip(centred / spread, -3.0, 3.0) if spread > 0 else np.zeros(len(values))
