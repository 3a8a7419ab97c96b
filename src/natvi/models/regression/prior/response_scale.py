"""Where a response lies and how far it spreads on the scale of the predictor: what the default prior is scaled to."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from natvi.families.table import Family
from natvi.models.regression.prior.standard import root_mean_square, spread

PROBABILITIES = {"logit": expit, "probit": ndtr, "cloglog": lambda eta: -np.expm1(-np.exp(np.minimum(eta, 700.0)))}
PREDICTORS = {"logit": logit, "probit": ndtri, "cloglog": lambda p: np.log(-np.log1p(-p))}
FURTHEST = 40.0  # beyond which every probability is 0 or 1


class ResponseScale(NamedTuple):
    """The intercept of a model without covariates, the spread s, and a note where s had to be chosen."""

    centre: float
    spread: float
    note: str = ""


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
    if family.link == "identity":
        return _of_numbers(y - o, weights, has_constant)
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
