"""A design matrix with its response, for models that need no formula."""

from typing import NamedTuple

import numpy as np


class GlmData(NamedTuple):
    """Covariates and response of a generalized linear model, in float64."""

    X: np.ndarray  # (rows, columns), the intercept first
    y: np.ndarray  # (rows,)
    names: tuple[str, ...]  # one for each column
