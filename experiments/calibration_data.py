"""Data sets for simulation-based calibration: parameters drawn from the prior, then responses drawn from the model.

The prior is set by hand, narrow and the same for every data set, so that no default takes part: slopes N(0, 0.5²), an
intercept of sd 0.5, sds half-normal(0.5), correlations LKJ(1), which for two effects is uniform, a lognormal
dispersion. Data sets of one design share group sizes and columns, and with them all compiled code.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

PER_DESIGN, PER_CROSSED_DESIGN = 200, 60
GROUPS, FEWEST_ROWS, MOST_ROWS = 20, 3, 9
OTHER = 8  # levels of the second factor, where there is one
SLOPES = ("x1", "x2")
SLOPE_SD = INTERCEPT_SD = EFFECT_SD = 0.5
INTERCEPT_MEAN = {"poisson": 1.0, "negative_binomial": 1.0, "gamma": 1.0}  # 0 for the others
# name, mean and sd of its logarithm
DISPERSION = {
    "gaussian": ("sigma", 0.0, 0.3),
    "negative_binomial": ("phi", 1.1, 0.3),
    "gamma": ("shape", 1.1, 0.3),
}
FAMILIES = ("gaussian", "poisson", "bernoulli", "binomial", "negative_binomial", "gamma")


class Design(NamedTuple):
    """Family, whether the first covariate has a random slope, and whether a second factor crosses the groups."""

    family: str
    slopes: bool
    crossed: bool = False

    @property
    def name(self) -> str:
        """A short name."""
        kind = "crossed" if self.crossed else "slopes" if self.slopes else "intercepts"
        return f"{self.family.replace('_', ' ')}, random {kind}"

    @property
    def number(self) -> int:
        """How many data sets there are of it."""
        return PER_CROSSED_DESIGN if self.crossed else PER_DESIGN

    @property
    def formula(self) -> str:
        """The model that is fitted, which is the one that made the data."""
        left = "p(y, trials)" if self.family == "binomial" else "y"
        other = " + (1 | h)" if self.crossed else ""
        return f"{left} ~ x1 + x2 + ({'1 + x1' if self.slopes else '1'} | g){other}"

    @property
    def prior(self) -> dict[str, Any]:
        """The prior from which the parameters are drawn, as `natvi.glmm` reads it."""
        prior: dict[str, Any] = {"Intercept": (INTERCEPT_MEAN.get(self.family, 0.0), INTERCEPT_SD)}
        prior |= dict.fromkeys(SLOPES, SLOPE_SD)
        prior["sd"] = ("half_normal", EFFECT_SD)
        if self.slopes:
            prior["corr"] = ("lkj", 1.0)
        if self.family in DISPERSION:
            name, mu, sd = DISPERSION[self.family]
            prior[name] = ("lognormal", mu, sd)
        return prior


# random intercepts first: they are quick and tell most
DESIGNS = (
    *(Design(family, slopes) for slopes in (False, True) for family in FAMILIES),
    *(Design(family, False, True) for family in ("poisson", "bernoulli")),
)


class Simulated(NamedTuple):
    """A data set with the parameters that made it, by the names under which a fit reports them."""

    frame: pd.DataFrame
    truth: dict[str, np.ndarray]


def simulate(design: Design, number: int, seed: int) -> Simulated:
    """Draw parameters from the prior and responses given them; the same arguments give the same data.

    Args:
        design: Family and random effects.
        number: Of the data set.
        seed: Of everything.

    Returns:
        Columns `g`, `x1`, `x2`, `y`, `trials` for binomial responses, `h` for crossed factors; numbers, and arrays
        over groups.
    """
    at = DESIGNS.index(design)
    fixed = np.random.default_rng([seed, at])  # sizes and covariates belong to the design
    sizes = fixed.integers(FEWEST_ROWS, MOST_ROWS + 1, GROUPS)
    g = np.repeat(np.arange(GROUPS), sizes)
    x1, x2 = fixed.standard_normal(len(g)), (np.arange(GROUPS) % 2)[g]
    trials = fixed.integers(2, 11, len(g))
    h = fixed.permutation(len(g)) % OTHER
    rng = np.random.default_rng([seed, at, number])
    truth = _parameters(design, rng)
    eta = truth["Intercept"] + truth["x1"] * x1 + truth["x2"] * x2 + truth["Intercept|g"][g]
    if design.slopes:
        eta = eta + truth["x1|g"][g] * x1
    if design.crossed:
        eta = eta + truth["Intercept|h"][h]
    dispersion = float(truth[DISPERSION[design.family][0]]) if design.family in DISPERSION else None
    columns: dict[str, Any] = {"g": g, "x1": x1, "x2": x2, "y": respond(rng, design.family, eta, dispersion, trials)}
    columns |= {"trials": trials} if design.family == "binomial" else {}
    return Simulated(pd.DataFrame(columns | ({"h": h} if design.crossed else {})), truth)


def _parameters(design: Design, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw every parameter from the prior, the random effects included."""
    truth = {"Intercept": rng.normal(INTERCEPT_MEAN.get(design.family, 0.0), INTERCEPT_SD)}
    truth |= {name: rng.normal(0.0, SLOPE_SD) for name in SLOPES}
    effects = ("Intercept", "x1") if design.slopes else ("Intercept",)
    sds = np.abs(rng.normal(0.0, EFFECT_SD, len(effects)))
    z = rng.standard_normal((len(effects), GROUPS))
    truth |= {f"sd({effect}|g)": sd for effect, sd in zip(effects, sds, strict=True)}
    if design.slopes:
        rho = rng.uniform(-1.0, 1.0)
        truth["corr(Intercept,x1|g)"] = rho
        z[1] = rho * z[0] + np.sqrt(1 - rho**2) * z[1]
    if design.family in DISPERSION:
        name, mu, sd = DISPERSION[design.family]
        truth[name] = np.exp(rng.normal(mu, sd))
    truth |= {f"{effect}|g": sd * row for effect, sd, row in zip(effects, sds, z, strict=True)}
    if design.crossed:
        sd = np.abs(rng.normal(0.0, EFFECT_SD))
        truth |= {"sd(Intercept|h)": sd, "Intercept|h": sd * rng.standard_normal(OTHER)}
    return {name: np.asarray(value) for name, value in truth.items()}


def respond(
    rng: np.random.Generator, family: str, eta: np.ndarray, dispersion: float | None, trials: np.ndarray
) -> np.ndarray:
    """Draw responses given predictors and dispersion: sigma, phi or shape."""
    if family == "gaussian":
        return rng.normal(eta, dispersion)
    if family in ("bernoulli", "binomial"):
        return rng.binomial(trials if family == "binomial" else 1, 1 / (1 + np.exp(-eta)))
    if family == "poisson":
        return rng.poisson(np.exp(eta))
    assert dispersion is not None
    rate = rng.gamma(dispersion, np.exp(eta) / dispersion)
    return rng.poisson(rate) if family == "negative_binomial" else rate


def kind_of(name: str) -> str:
    """Return the kind of a parameter by its name.

    Example:
        >>> kind_of("sd(x1|g)"), kind_of("x1|g"), kind_of("phi")
        ('sds', 'random effects', 'dispersion')
    """
    if name in ("Intercept", *SLOPES):
        return "intercept" if name == "Intercept" else "slopes"
    if name.startswith("sd("):
        return "sds"
    if name.startswith("corr("):
        return "correlations"
    return "random effects" if "|" in name else "dispersion"


KINDS = ("intercept", "slopes", "sds", "correlations", "dispersion", "random effects")
