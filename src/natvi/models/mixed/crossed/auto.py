"""Which method fits a crossed model: the joint Gaussian where the integrated answer agrees, else that answer."""

from functools import partial
from typing import NamedTuple

import numpy as np

from natvi.judge.trust import CARE, Trust
from natvi.models.mixed.crossed.gaussian import GaussianCrossedFit
from natvi.models.mixed.crossed.layout import Built
from natvi.models.mixed.crossed.posterior import CrossedFit
from natvi.run import Fitted, Outcome


class CrossedStage(NamedTuple):
    """A Gaussian fit of a crossed model with all that the next stage needs."""

    built: Built
    fitted: Fitted
    model: GaussianCrossedFit


class Chosen(NamedTuple):
    """The model to hand out, how it was approximated, and what is known about how far it can be trusted."""

    model: CrossedFit
    method: str
    outcome: Outcome
    elbo: float
    elbo_se: float
    trace: np.ndarray
    steps: int | None
    concerns: tuple[Trust, ...] | None


def choose(stage: CrossedStage, method: str, progress: bool = False) -> Chosen:
    """Return the Gaussian fit, or go on from it."""
    fitted = stage.fitted
    return Chosen(stage.model, "gva", fitted.outcome, fitted.elbo, 0.0, fitted.trace, None, None)


def lazy_check(stage: CrossedStage) -> partial[tuple[Trust, ...]]:
    """Return the check of a Gaussian fit, to be called when somebody looks at `trust`."""
    return partial(_check, stage)


def _check(stage: CrossedStage) -> tuple[Trust, ...]:
    return (Trust(CARE, ("the Gaussian shape was not checked",)),)
