"""Where a response lies and how far it spreads on the scale of the predictor: what the default prior is scaled to."""

from typing import NamedTuple

import numpy as np

from natvi.families.table import Family
from natvi.models.regression.prior.standard import root_mean_square, spread
from natvi.special import expit, logit, ndtr, ndtri

PROBABILITIES = {"logit": expit, "probit": ndtr, "cloglog": lambda eta: -np.expm1(-np.exp(np.minimum(eta, 700.0)))}
PREDICTORS = {"logit": logit, "probit": ndtri, "cloglog": lambda p: np.log(-np.log1p(-p))}
FURTHEST = 40.0  # beyond which every probability is 0 or 1


class ResponseScale(NamedTuple):
    """The intercept of a model without covariates, the spread s, and a note where s had to be chosen.

    `unit` is the sd of the response where sigma has its unit and the predictor has none.
    """

    centre: float
    spread: float
    note: str = ""
    unit: float | None = None


def response_scale(
    family: Family, y: np.ndarray, offset: np.ndarray | None, weights: np.ndarray | None, has_constant: bool = True
) -> ResponseScale:
    """Return where the predictor lies if nothing but a constant is known.

    For an identity link s is the sd of y - offset, or its root mean square in a model without a constant; for other
    links 1. The centre is the intercept-only fit with offset, weights and trials, for counts plus half a count, for
    yes and no plus half a success and half a failure, all in all: it is finite for rare and for all-equal responses.

    Args:
        family: The response distribution.
        y: The responses; of trials the proportion of successes.
        offset: A known part of the predictor, or None.
        weights: How often each row counts, trials included, or None.
        has_constant: Whether a constant lies in the span of the covariates.
    """
    o = np.zeros(len(y)) if offset is None else offset
    w = np.ones(len(y)) if weights is None else weights
    if family.name in _OWN:
        return _OWN[family.name](family, y, o, w)
    if family.name == "lognormal":
        return _of_numbers(np.log(y) - o, weights, has_constant)
    if family.link == "identity":
        return _of_numbers(y - o, weights, has_constant)
    if family.name == "gaussian":  # sigma has the unit of y
        size = spread(y, weights)
        centre = float(np.log(np.average(y, weights=w) / np.average(np.exp(o - np.max(o)), weights=w)) - np.max(o))
        return ResponseScale(centre, 1.0, unit=size if size > 0 else float(np.mean(np.abs(y))))
    if family.link == "log":
        top = float(np.max(o))
        if family.name == "gamma":  # sum w (y e^(-b0 - o) - 1) = 0
            size = float(np.max(y))
            low = float(np.min(o))
            return ResponseScale(
                float(np.log(np.average(y / size * np.exp(low - o), weights=w)) + np.log(size) - low), 1.0
            )
        # e^(b0) sum w e^o = sum w y + 1/2
        size = max(float(np.max(y)), 1.0)
        counts = np.log(np.sum(w * (y / size)) + 0.5 / size) + np.log(size)
        return ResponseScale(float(counts - np.log(np.sum(w * np.exp(o - top))) - top), 1.0)
    return ResponseScale(_even_odds(family.link, y, o, w), 1.0)


def _of_times(family: Family, y: np.ndarray, o: np.ndarray, w: np.ndarray) -> ResponseScale:
    """Return the logarithm of the mean time, all times over events and half of one more; for a hazard its negative."""
    ended, scale = np.sum(w * (y > 0)) + 0.5, np.exp(family.settings[0]) if family.settings else 1.0
    if family.name == "exponential":
        low = float(np.min(o))
        total = np.sum(w * np.abs(y) / np.max(np.abs(y)) * np.exp(low - o))
        return ResponseScale(float(np.log(total / ended) + np.log(np.max(np.abs(y))) - low), 1.0)
    top = float(np.max(o))
    return ResponseScale(float(np.log(ended / np.sum(w * np.abs(y) / scale * np.exp(o - top))) - top), 1.0)


def _of_categories(family: Family, y: np.ndarray, o: np.ndarray, w: np.ndarray) -> ResponseScale:
    """Return where the predictor lies for P(y > first), the other thresholds apart."""
    return ResponseScale(_even_odds(family.link, (y > family.settings[1]).astype(float), o, w), 1.0)


def _of_nonzero(family: Family, y: np.ndarray, o: np.ndarray, w: np.ndarray) -> ResponseScale:
    """Return the logarithm of the mean of what is not zero."""
    some = y > 0
    if not some.any():
        return ResponseScale(float(np.log(0.5 / np.sum(w))), 1.0, "all responses are zero")
    top = float(np.max(o[some]))
    size = float(np.max(y))
    mean = np.log(np.sum((w * y)[some] / size)) + np.log(size)
    return ResponseScale(float(mean - np.log(np.sum(w[some] * np.exp(o[some] - top))) - top), 1.0)


def _of_numbers(y: np.ndarray, weights: np.ndarray | None, has_constant: bool) -> ResponseScale:
    if not has_constant:
        size = root_mean_square(y, weights)
        return ResponseScale(0.0, size) if size > 0 else ResponseScale(0.0, 1.0, "all responses are zero")
    centre = float(np.average(y / (np.max(np.abs(y)) or 1.0), weights=weights) * (np.max(np.abs(y)) or 1.0))
    size = spread(y, weights)
    if size > 0 and np.any(y != y[0]):
        return ResponseScale(centre, size)
    why = "a single row" if len(y) == 1 else "all responses are equal"
    return ResponseScale(centre, 1.0, f"{why}: their spread is unknown, and the prior takes it as 1")


def _even_odds(link: str, y: np.ndarray, o: np.ndarray, w: np.ndarray) -> float:
    """Solve sum w (y - g(b0 + o)) + (1/2 - g(b0 + mean o)) = 0 by bisection; the left side falls with b0."""
    g, middle = PROBABILITIES[link], float(np.average(o, weights=w))
    if np.all(o == o[0]):
        return float(PREDICTORS[link]((np.sum(w * y) + 0.5) / (np.sum(w) + 1.0)) - o[0])
    low, high = -middle - FURTHEST, -middle + FURTHEST
    for _ in range(80):
        b = 0.5 * (low + high)
        rest = float(np.sum(w * (y - g(b + o)))) + 0.5 - float(g(b + middle))
        low, high = (b, high) if rest > 0 else (low, b)
    return 0.5 * (low + high)


_COUNTS = ("zero_inflated_poisson", "zero_inflated_negative_binomial", "hurdle_poisson", "hurdle_negative_binomial")
_OWN = {"exponential": _of_times, "weibull": _of_times, "ordinal": _of_categories} | dict.fromkeys(_COUNTS, _of_nonzero)
