"""The method `integrated`: points of sds, correlations and dispersion with weights, a Gaussian of the rest at each.

p(hyper | y) is close to p(hyper) exp L(hyper), L being the best bound given it (INLA's idea, with the best Gaussian in
place of Laplace's). From the joint Gaussian Newton's method goes to the mode; curvature and a look along the axes make
a proposal with sides of their own; evenly spread points of it are weighted. The answer is the mixture of the inner
Gaussians.

What the bound lacks given hyper is the divergence of the inner Gaussian, half the variance of log p - log q where that
is close to normal. It would not matter if it were the same everywhere; how far it moves the answer says how far the
answer can be trusted, and as far as that it is taken into account.
"""

from typing import NamedTuple

import numpy as np

from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedMatrix
from natvi.models.mixed.crossed.integrated.inner import Described, IntegratedDensity
from natvi.models.mixed.marginal.chart import Plain
from natvi.models.mixed.marginal.proposal import Mixture, draw_mixture, propose, refit
from natvi.models.mixed.marginal.search import find_mode
from natvi.models.mixed.marginal.settle import weigh
from natvi.target.mixed.crossed import CrossedTarget

DIFFERENCE = 0.05  # in sds, for second derivatives from differences of gradients
FEW, MANY = 128, 256  # points, for up to two hyper-parameters and for more
ENOUGH, MOST_ROUNDS = 0.35, 3  # share of the points that should be effective
SEED = 1


class Points(NamedTuple):
    """Weighted points of the hyper-parameters with the Gaussians there.

    Attributes:
        hyper: The points `(m, h)`.
        weights: What they stand for, the spread of log p - log q taken into account; they sum to one.
        plain: Weights without that.
        described: The Gaussians.
        k: The Pareto k of the weights.
        effective: How many equally weighted points they are worth.
        log_evidence: log p(y).
        error: Its standard error.
        steps: Steps to the mode.
        num_points: How many inner Gaussians were found in all.
    """

    hyper: np.ndarray
    weights: np.ndarray
    plain: np.ndarray
    described: Described
    k: float
    effective: float
    log_evidence: float
    error: float
    steps: int
    num_points: int


def integrate(target: CrossedTarget, mean: ArrowVector, precision: BlockedMatrix, covariance: np.ndarray) -> Points:
    """Weigh points of the hyper-parameters.

    Args:
        target: The model.
        mean: Of the joint Gaussian.
        precision: Of the joint Gaussian.
        covariance: Of its hyper-parameters.

    Raises:
        FloatingPointError: If there is no point with a finite bound, with a phrase that says where it failed.
    """
    p, b = target.p, target.b
    centre = np.asarray(mean.shared)[p:b]
    density = IntegratedDensity(target, mean, precision, centre)
    try:
        mode = find_mode(density.scores, centre, np.linalg.cholesky(covariance), DIFFERENCE)
        every, dof, chart = list(range(len(centre))), max(8.0, 2.0 * len(centre)), Plain()
        main = propose(density, mode.centre, mode.covariance, every, dof, chart)
    except np.linalg.LinAlgError as error:
        raise FloatingPointError(f"the bound has no curvature around its mode ({error})") from error
    parts: Mixture = [(1.0, main)]
    size, best = FEW if len(centre) <= 2 else MANY, None
    for tried in range(MOST_ROUNDS):
        points, log_q = draw_mixture(parts, size, SEED + tried)
        found = _weigh(density, points, log_q, len(mode.trace), tried)
        if found is None:
            break
        if best is None or found.effective > best.effective:
            best = found
        if found.effective > ENOUGH * size:
            break
        again = refit(found.hyper, found.weights, every, dof, chart)
        parts = [(0.7, again), (0.3, main)]
    if best is None:
        raise FloatingPointError("the bound is not finite around its mode")
    return best._replace(num_points=density.num_points)


def _weigh(density: IntegratedDensity, points: np.ndarray, log_q: np.ndarray, steps: int, seed: int) -> Points | None:
    described = density.describe(points, seed)
    bound = np.where(described.inner.settled > 0, described.inner.bound, np.nan)
    plain, better = (weigh(points, bound + part, log_q) for part in (0.0, 0.5 * described.spread))
    if plain is None or better is None:
        return None
    return Points(
        points,
        better.weights,
        plain.weights,
        described,
        better.k,
        better.effective,
        better.log_evidence,
        better.error,
        steps,
        0,
    )
