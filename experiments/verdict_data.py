"""Simulated mixed-model data for the study of verdicts: 25 designs, eight data sets each.

Data sets of one design share family, group sizes and columns, and with them all compiled code; true values and noise
differ. True sds go from 0.05 to 2.5, one from each eighth of that range on the log scale. Columns come in the units
in which people keep them, years around 2000 and incomes of tens of thousands: neither centred nor scaled.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.mixed_problems import MixedProblem

PER_DESIGN = 8
SMALLEST_SD, LARGEST_SD = 0.05, 2.5
# zero and unit of every column: a year, a flag coded 1 and 2, an income, a share; of a random slope a day of ten
UNITS = ((2000.0, 8.0), (1.0, 1.0), (45_000.0, 15_000.0), (0.03, 0.004))
SLOPE_UNITS = (10.0, 3.0)


class Design(NamedTuple):
    """Family, number of groups, rows per group at most, covariates, and whether the first has a random slope."""

    family: str
    groups: int
    most_rows: int
    covariates: int
    slopes: bool = False

    @property
    def name(self) -> str:
        """A short name."""
        return f"{self.family}, {self.groups} groups{', slopes' if self.slopes else ''}"

    @property
    def formula(self) -> str:
        """The model that is fitted, which is the one that made the data."""
        left = "p(y, trials)" if self.family == "binomial" else "y"
        columns = " + ".join(f"x{j + 1}" for j in range(self.covariates))
        return f"{left} ~ {columns} + ({'1 + x1' if self.slopes else '1'} | g)"


DESIGNS = (
    Design("poisson", 10, 10, 1),
    Design("poisson", 60, 5, 3),
    Design("poisson", 300, 3, 2),
    Design("poisson", 40, 10, 2, True),
    Design("bernoulli", 20, 10, 2),
    Design("bernoulli", 80, 6, 4),
    Design("bernoulli", 150, 4, 1),
    Design("bernoulli", 300, 3, 2),
    Design("bernoulli", 100, 10, 2, True),
    Design("binomial", 10, 8, 1),
    Design("binomial", 40, 4, 3),
    Design("binomial", 200, 3, 2),
    Design("binomial", 60, 6, 1, True),
    Design("gaussian", 12, 6, 2),
    Design("gaussian", 50, 4, 4),
    Design("gaussian", 250, 3, 1),
    Design("gaussian", 30, 10, 2, True),
    Design("negative_binomial", 15, 10, 1),
    Design("negative_binomial", 60, 5, 2),
    Design("negative_binomial", 200, 4, 3),
    Design("negative_binomial", 50, 8, 1, True),
    Design("gamma", 10, 8, 2),
    Design("gamma", 60, 4, 1),
    Design("gamma", 200, 3, 3),
    Design("gamma", 40, 8, 2, True),
)


def problem(design: Design, number: int, seed: int) -> MixedProblem:
    """Return one data set with its model, under the library's default prior."""
    name = f"{design.name}, number {number}"
    return MixedProblem(name, lambda: simulate(design, number, seed), design.formula, design.family, "default")


def simulate(design: Design, number: int, seed: int) -> pd.DataFrame:
    """Return a data frame; the same design, number and seed give the same data.

    Args:
        design: Family, sizes and columns.
        number: 0 to 7; it says from which eighth of their range the true sds are taken.
        seed: Of everything else.

    Returns:
        Columns `g`, `y`, `x1` to at most `x4`, and `trials` for binomial responses.
    """
    at = DESIGNS.index(design)
    # the sizes belong to the design; one group is as large as may be and one has a single row
    sizes = np.random.default_rng([seed, at]).integers(1, design.most_rows + 1, design.groups)
    sizes[:2] = 1, design.most_rows
    rng = np.random.default_rng([seed, at, number])
    g = np.repeat(np.arange(design.groups), sizes)
    X = _covariates(rng, g, design)
    intercept = rng.uniform(-1.5, 1.5) if design.family in ("bernoulli", "binomial") else rng.uniform(-0.5, 1.5)
    eta = intercept + X @ rng.normal(scale=0.5, size=design.covariates)
    effects = _effects(rng, design, number)
    eta += effects[g, 0] + (X[:, 0] * effects[g, 1] if design.slopes else 0.0)
    units = (SLOPE_UNITS if design.slopes else UNITS[0], *UNITS[1:])
    columns: dict[str, Any] = {f"x{j + 1}": units[j][0] + units[j][1] * X[:, j] for j in range(design.covariates)}
    return pd.DataFrame({"g": g, **columns, **_response(rng, design.family, eta)})


def _covariates(rng: np.random.Generator, g: np.ndarray, design: Design) -> np.ndarray:
    """Return columns that differ within groups (first, third) and between groups (second: 0 or 1, fourth)."""
    first, third = rng.standard_normal((2, len(g)))
    second, fourth = (np.arange(design.groups) % 2)[g], rng.standard_normal(design.groups)[g]
    return np.stack([first, second, third, fourth], axis=1)[:, : design.covariates]


def _effects(rng: np.random.Generator, design: Design, number: int) -> np.ndarray:
    """Return the random effects `(groups, 1 or 2)`; the sd of the slopes is from another eighth than the first."""
    eighths = np.array([number, (3 * number + 2) % PER_DESIGN])[: 1 + design.slopes]
    share = (eighths + rng.uniform(size=len(eighths))) / PER_DESIGN
    sds = SMALLEST_SD * (LARGEST_SD / SMALLEST_SD) ** share
    z = rng.standard_normal((design.groups, len(sds)))
    if design.slopes:
        rho = rng.uniform(-0.8, 0.8)
        z[:, 1] = rho * z[:, 0] + np.sqrt(1 - rho**2) * z[:, 1]
    return z * sds


def _response(rng: np.random.Generator, family: str, eta: np.ndarray) -> dict[str, np.ndarray]:
    """Draw responses given the linear predictors; dispersion parameters are drawn too."""
    probability, rate = 1 / (1 + np.exp(-eta)), np.exp(np.minimum(eta, 12.0))
    if family == "bernoulli":
        return {"y": rng.binomial(1, probability)}
    if family == "binomial":
        trials = rng.integers(2, 11, len(eta))
        return {"y": rng.binomial(trials, probability), "trials": trials}
    if family == "poisson":
        return {"y": rng.poisson(rate)}
    if family == "gaussian":
        return {"y": eta + rng.uniform(0.5, 1.5) * rng.standard_normal(len(eta))}
    shape = rng.uniform(1.0, 5.0)
    rate = rng.gamma(shape, rate / shape)
    return {"y": rng.poisson(rate) if family == "negative_binomial" else np.maximum(rate, 1e-6)}
