"""Simulated responses of every family, in groups, with what R needs to fit them."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit

import natvi

BETA, EFFECT_SD, PART_SLOPE = (0.4, 0.5), 0.6, 0.7


class Problem(NamedTuple):
    """A family with the words for both programs.

    Attributes:
        family: For natvi.
        link: For natvi.
        left: The left side of the formula.
        peer: The fit in R, a call of the data frame d that gives the coefficients; empty where R has none.
        zero: A formula of the zeros.
        dispersion: A formula of the dispersion.
    """

    family: str
    link: str | None = None
    left: str = "y"
    peer: str = ""
    zero: str | None = None
    dispersion: str | None = None


TMB = "fixef(glmmTMB(y ~ x + (1 | g), d, family = {}{}))$cond"
PROBLEMS = {
    "negative_binomial": Problem("negative_binomial", peer=TMB.format("nbinom2()", "")),
    "geometric": Problem("geometric"),
    "lognormal": Problem("lognormal", peer="fixef(lmer(log(y) ~ x + (1 | g), d, REML = FALSE))"),
    "gaussian, log link": Problem("gaussian", "log", peer=TMB.format("gaussian(link = 'log')", "")),
    "exponential, censored": Problem("exponential", left="cens(y, status)"),
    "weibull, censored": Problem("weibull", left="cens(y, status)"),
    "student_t(4)": Problem("student_t(4)"),
    "student_t": Problem("student_t", peer=TMB.format("t_family()", "")),
    "beta": Problem("beta", peer=TMB.format("beta_family()", "")),
    "zero_inflated_poisson": Problem("zero_inflated_poisson", peer=TMB.format("poisson()", ", ziformula = ~1")),
    "zero_inflated_negative_binomial": Problem(
        "zero_inflated_negative_binomial", peer=TMB.format("nbinom2()", ", ziformula = ~1")
    ),
    "hurdle_poisson": Problem("hurdle_poisson", peer=TMB.format("truncated_poisson()", ", ziformula = ~1")),
    "hurdle_negative_binomial": Problem(
        "hurdle_negative_binomial", peer=TMB.format("truncated_nbinom2()", ", ziformula = ~1")
    ),
    "zero_inflated_poisson, zero ~ z": Problem(
        "zero_inflated_poisson",
        peer="unlist(fixef(glmmTMB(y ~ x + (1 | g), d, family = poisson(), ziformula = ~z))[c('cond', 'zi')])",
        zero="~ z",
    ),
    "negative_binomial, dispersion ~ z": Problem(
        "negative_binomial",
        peer="unlist(fixef(glmmTMB(y ~ x + (1 | g), d, family = nbinom2(), dispformula = ~z))[c('cond', 'disp')])",
        dispersion="~ z",
    ),
    "ordinal, logit": Problem("ordinal", peer="polr_like(ordinal::clmm(factor(y) ~ x + (1 | g), data = d))"),
    "ordinal, probit": Problem(
        "ordinal", "probit", peer="polr_like(ordinal::clmm(factor(y) ~ x + (1 | g), data = d, link = 'probit'))"
    ),
}


def simulate(name: str, groups: int, rows_each: int, seed: int) -> pd.DataFrame:
    """Draw a data set."""
    rng = np.random.default_rng(seed)
    n = groups * rows_each
    g, x = np.repeat(np.arange(groups), rows_each), rng.standard_normal(n)
    eta = BETA[0] + BETA[1] * x + (EFFECT_SD * rng.standard_normal(groups))[g]
    problem, z = PROBLEMS[name], np.zeros(n)
    if problem.zero or problem.dispersion:
        z = rng.standard_normal(n)
    frame = pd.DataFrame({"y": _draw(problem, eta, z, rng), "x": x, "g": g, "z": z})
    if "censored" in name:
        end = rng.exponential(4.0, n)
        frame["status"] = (frame["y"] <= end).astype(int)
        frame["y"] = np.minimum(frame["y"], end)
    return frame


def _draw(problem: Problem, eta: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw responses; 0.3 of them are zeros, and phi is 2, where z is zero."""
    n, mu, family = len(eta), np.exp(eta), problem.family
    phi, share = 2.0 * np.exp(PART_SLOPE * z), expit(logit(0.3) + PART_SLOPE * z)

    def counts() -> np.ndarray:
        return rng.poisson(mu * rng.gamma(phi, 1.0 / phi) if "negative" in family else mu)

    if family.startswith("hurdle"):
        y = counts()
        while (y == 0).any():
            y = np.where(y == 0, counts(), y)
        return np.where(rng.uniform(size=n) < 0.3, 0, y)
    if family.startswith("zero"):
        return np.where(rng.uniform(size=n) < share, 0, counts())
    if family == "ordinal":
        latent = eta + (rng.standard_normal(n) if problem.link == "probit" else rng.logistic(size=n))
        return 1 + np.sum(latent[:, None] > np.array([-0.5, 0.6, 1.4, 2.5]), axis=1)
    return {
        "negative_binomial": counts,
        "geometric": lambda: rng.geometric(1 / (1 + mu)) - 1,
        "lognormal": lambda: np.exp(eta + 0.5 * rng.standard_normal(n)),
        "gaussian": lambda: mu + 0.5 * rng.standard_normal(n),
        "exponential": lambda: rng.exponential(mu),
        "weibull": lambda: (rng.exponential(size=n) / mu) ** (1 / 1.7),
        "student_t(4)": lambda: eta + 0.5 * rng.standard_t(4, size=n),
        "student_t": lambda: eta + 0.5 * rng.standard_t(4, size=n),
        "beta": lambda: np.clip(rng.beta(6 * expit(eta), 6 * expit(-eta)), 1e-6, 1 - 1e-6),
    }[family]()


def model_of(name: str, data: pd.DataFrame) -> Any:
    """Return the mixed model of a problem."""
    problem = PROBLEMS[name]
    parts = {"zero": problem.zero, "dispersion": problem.dispersion}
    return natvi.glmm(f"{problem.left} ~ x + (1 | g)", data, family=problem.family, link=problem.link, **parts)
