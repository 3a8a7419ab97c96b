"""Columns of zeros after those of a mixed model, so that a model with one term fewer finds its program compiled.

The coefficient of a column of zeros has the prior N(0, 1), and N(0, 1) is its part of the Gaussian, independent of the
rest: its part of the bound is zero, and nothing else knows of it. A target knows how many shared coordinates it has;
the Gaussian that leaves the ascent, and all that is read of it, has those of the model alone.
"""

import numpy as np
from jaxtyping import Float, Int

from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.models.regression.prior.choice import Prior
from natvi.target import SumOfTerms
from natvi.target.mixed.marginal import mixed_parts


def shared_places(target: SumOfTerms, num_shared: int) -> Int[np.ndarray, " g"] | None:
    """Return where the shared coordinates of the model stand in the target; None where there are no others."""
    likelihood, effects = mixed_parts(target)
    filling = effects.stop - num_shared
    if filling == 0:
        return None
    real = likelihood.p - filling
    return np.concatenate([np.arange(real), np.arange(likelihood.p, effects.stop)])


def filled_points(target: SumOfTerms, shared: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s G"]:
    """Return points with zeros for the filling."""
    places = shared_places(target, shared.shape[1])
    if places is None:
        return shared
    filled = np.zeros((len(shared), mixed_parts(target)[1].stop))
    filled[:, places] = shared
    return filled


def filled_prior(prior: Prior, columns: int, filling: int) -> Prior:
    """Return the prior with N(0, 1) for coefficients after the first `columns`."""
    if filling == 0:
        return prior
    mean, sd = (np.insert(a, [columns] * filling, value) for a, value in ((prior.mean, 0.0), (prior.sd, 1.0)))
    placed = tuple(found._replace(position=found.position + filling) for found in prior.scales.placed)
    covariances = tuple(found._replace(start=found.start + filling) for found in prior.scales.covariances)
    return prior._replace(mean=mean, sd=sd, scales=prior.scales._replace(placed=placed, covariances=covariances))


def without_filling(target: SumOfTerms, posterior: ArrowPrecision, num_shared: int) -> ArrowPrecision:
    """Return the Gaussian of the model's own coordinates: the others are independent of them."""
    places = shared_places(target, num_shared)
    if places is None:
        return posterior
    mean, factor, inverse = posterior
    own = np.ix_(places, places)
    return ArrowPrecision(
        ArrowVector(mean.local, np.asarray(mean.shared)[places]),  # type: ignore[arg-type]
        ArrowFactor(factor.local, np.asarray(factor.cross)[places], np.asarray(factor.shared)[own]),  # type: ignore[arg-type]
        np.asarray(inverse)[own],  # type: ignore[arg-type]
    )


def with_filling(target: SumOfTerms, posterior: ArrowPrecision) -> ArrowPrecision:
    """Return the Gaussian with N(0, 1) for the filling."""
    places = shared_places(target, posterior.mean.shared.shape[0])
    if places is None:
        return posterior
    mean, factor, inverse = posterior
    total, (_, r, n) = mixed_parts(target)[1].stop, factor.cross.shape
    shared, cross = np.zeros(total), np.zeros((total, r, n))
    shared[places], cross[places] = mean.shared, factor.cross
    corner, corner_inverse = np.eye(total), np.eye(total)
    corner[np.ix_(places, places)], corner_inverse[np.ix_(places, places)] = factor.shared, inverse
    return ArrowPrecision(
        ArrowVector(mean.local, shared),  # type: ignore[arg-type]
        ArrowFactor(factor.local, cross, corner),  # type: ignore[arg-type]
        corner_inverse,  # type: ignore[arg-type]
    )
