"""Simulated data with crossed and nested factors for the study of verdicts: twelve designs, five data sets each.

Data sets of one design share family and cells, and with them all compiled code; true values and noise differ. True sds
go from 0.05 to 2.5, those of one factor from each fifth of that range on the log scale. Columns come in the units in
which people keep them.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.calibration_data import respond
from experiments.verdict_data import LARGEST_SD, SLOPE_UNITS, SMALLEST_SD, UNITS

PER_DESIGN = 5
PARTS = {"crossed": "(1 | a) + (1 | b)", "nested": "(1 | a/b)", "slopes": "(1 + x1 | a) + (1 | b)"}


class CrossedDesign(NamedTuple):
    """Family, kind of factors, their levels (of b within each level of a where nested), and rows in all."""

    family: str
    kind: str
    levels: tuple[int, int]
    rows: int

    @property
    def name(self) -> str:
        """A short name."""
        return f"{self.family}, {self.kind}"

    @property
    def formula(self) -> str:
        """The model that is fitted, which is the one that made the data."""
        return f"y ~ x1 + x2 + {PARTS[self.kind]}"


DESIGNS = (
    CrossedDesign("gaussian", "crossed", (20, 8), 120),
    CrossedDesign("gaussian", "nested", (8, 4), 128),
    CrossedDesign("gaussian", "slopes", (15, 8), 200),
    CrossedDesign("poisson", "crossed", (24, 8), 130),
    CrossedDesign("poisson", "nested", (10, 4), 120),
    CrossedDesign("poisson", "slopes", (15, 8), 200),
    CrossedDesign("bernoulli", "crossed", (30, 20), 400),
    CrossedDesign("bernoulli", "nested", (12, 5), 420),
    CrossedDesign("bernoulli", "slopes", (25, 10), 500),
    CrossedDesign("negative_binomial", "crossed", (24, 10), 200),
    CrossedDesign("negative_binomial", "nested", (10, 4), 200),
    CrossedDesign("negative_binomial", "slopes", (15, 8), 240),
)


def simulate(design: CrossedDesign, number: int, seed: int) -> pd.DataFrame:
    """Return a data frame; the same design, number and seed give the same data.

    Args:
        design: Family, factors and sizes.
        number: 0 to 4; it says from which fifth of their range the true sds are taken.
        seed: Of everything else.

    Returns:
        Columns `y`, `x1` (differs between rows), `x2` (0 or 1, the same within a level of a), `a` and `b`.
    """
    at = DESIGNS.index(design)
    a, b = _cells(design, np.random.default_rng([7, at]))  # the cells belong to the design
    rng = np.random.default_rng([seed, at, number, 11])
    x1, x2 = rng.standard_normal(len(a)), a % 2
    binary = design.family == "bernoulli"
    eta = rng.uniform(-1.5, 1.5) if binary else rng.uniform(-0.5, 1.5)
    slopes = rng.normal(scale=0.5, size=2)
    sds = _sds(rng, number, 3)
    inner = a * design.levels[1] + b if design.kind == "nested" else b
    eta = eta + slopes[0] * x1 + slopes[1] * x2
    eta = eta + sds[0] * rng.standard_normal(a.max() + 1)[a] + sds[1] * rng.standard_normal(inner.max() + 1)[inner]
    if design.kind == "slopes":
        eta = eta + sds[2] * rng.standard_normal(a.max() + 1)[a] * x1
    dispersion = {"gaussian": rng.uniform(0.5, 1.5), "negative_binomial": rng.uniform(1.0, 5.0)}.get(design.family)
    y = respond(rng, design.family, np.minimum(eta, 12.0), dispersion, np.ones(len(a), dtype=int))
    zero, unit = SLOPE_UNITS if design.kind == "slopes" else UNITS[0]
    return pd.DataFrame({"y": y, "x1": zero + unit * x1, "x2": x2, "a": a, "b": b})


def _sds(rng: np.random.Generator, number: int, count: int) -> np.ndarray:
    """Return true sds, each from another fifth of the range."""
    fifths = np.array([number, (3 * number + 2) % PER_DESIGN, (2 * number + 1) % PER_DESIGN])[:count]
    share = (fifths + rng.uniform(size=count)) / PER_DESIGN
    return SMALLEST_SD * (LARGEST_SD / SMALLEST_SD) ** share


def _cells(design: CrossedDesign, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the levels of every row; every level occurs, and crossed cells have one row or two."""
    n, m = design.levels
    if design.kind == "nested":
        at = np.arange(design.rows) % (n * m)
        return at // m, at % m
    every = rng.permutation(np.tile(np.arange(n * m), 2 if design.rows > n * m else 1))
    diagonal = np.arange(max(n, m)) % n * m + np.arange(max(n, m)) % m
    at = np.concatenate([diagonal, every])[: design.rows]
    return at // m, at % m
