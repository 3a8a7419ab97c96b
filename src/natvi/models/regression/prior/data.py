"""What a prior is scaled to."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from natvi.formula.margins import Products
from natvi.models.regression.prior.response_scale import ResponseScale
from natvi.models.regression.prior.standard import StandardColumns


class PriorData(NamedTuple):
    """What a prior is scaled to.

    Attributes:
        y: The response; of trials the proportion of successes.
        X: The fixed-effects columns `(N, p)`.
        Z: The random-effects columns `(N, r)`; r = 0 without random effects, and then there is no omega.
        offset: A known part of the predictor, or None.
        weights: How often each row counts, trials included, or None.
        fixed: What the columns of X are products of; by default each is a number by itself.
        random: The same of Z.
        standard: The standard form of X, where it is known from more rows than these.
        response: Where the response lies, where that is known from more rows.
        random_standard: The standard form of Z, centred or not, where it is known from more rows.
    """

    y: np.ndarray
    X: np.ndarray
    Z: np.ndarray
    offset: np.ndarray | None = None
    weights: np.ndarray | None = None
    fixed: Products | None = None
    random: Products | None = None
    standard: StandardColumns | None = None
    response: ResponseScale | None = None
    random_standard: Callable[[bool], StandardColumns] | None = None
