"""The prior held against the data: does it pull, and is there anything the data add little to?

To first order, the posterior mean moves by Sigma grad log p(mu) for every unit by which the power of the prior is raised
(mu and Sigma being the posterior's): divided by posterior sds this is how hard the prior pulls. Where the posterior of a
parameter is nearly as wide as its prior, the data have added little.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natvi.models.regression.priors import Prior
from natvi.target.omega_prior import OmegaPrior
from natvi.target.scale_prior import ScalePrior
from natvi.x64 import float64

PULL = 0.5  # posterior sds
LITTLE = 0.9  # posterior sd over prior sd
FAR = 4.0  # prior sds from the prior's mean
NAMED = 3
CURE = "give a prior that you can defend, e.g. prior={{{name!r}: (mean, sd)}}, or prior='default'"


class PriorInfluence(NamedTuple):
    """How the prior acts on each shared coordinate.

    Attributes:
        pull: How far the prior moves the mean, in posterior sds.
        width: The posterior's sd over the prior's; NaN where the prior has none.
        distance: Of the posterior's mean from the prior's, in prior sds; NaN where the prior is no normal.
    """

    pull: np.ndarray
    width: np.ndarray
    distance: np.ndarray


def prior_influence(prior: Prior, mean: np.ndarray, covariance: np.ndarray) -> PriorInfluence:
    """Return how the prior acts on a posterior with this mean and covariance of the shared coordinates."""
    sds = np.sqrt(np.diagonal(covariance))
    prior_sds = _prior_sds(prior)
    pull = covariance @ _gradient(prior, mean) / sds
    distance = np.where(np.isfinite(prior.sd), (mean - prior.mean) / prior.sd, np.nan)
    return PriorInfluence(pull, sds / prior_sds, distance)


def _gradient(prior: Prior, mean: np.ndarray) -> np.ndarray:
    grad = -(mean - prior.mean) / prior.sd**2
    with float64():
        for found in prior.scales.placed:
            term = ScalePrior.of(found.density, found.position, found.power)
            grad[found.position] = float(jax.grad(term.at)(jnp.asarray(mean[found.position])))
        if (covariance := prior.scales.covariance) is not None:
            omega = OmegaPrior.of(covariance.densities, covariance.eta, covariance.start)
            grad[omega.own] = np.asarray(jax.grad(omega.log_density)(jnp.asarray(mean[omega.own])))
    return grad


def _prior_sds(prior: Prior) -> np.ndarray:
    """Return the prior's sd of every coordinate; NaN for correlated sds and correlations."""
    sds = np.where(np.isfinite(prior.sd), prior.sd, np.nan)
    u = (np.arange(200) + 0.5) / 200
    for found in prior.scales.placed:
        logs = np.log([max(found.density.quantile(float(p)), 1e-300) for p in u])
        sds[found.position] = np.std(logs) / abs(found.power)
    return sds


def prior_concerns(prior: Prior, names: list[str], mean: np.ndarray, covariance: np.ndarray) -> tuple[str, ...]:
    """Return a sentence for each way in which the prior decides, with parameter, size and cure; empty if it does not.

    Args:
        prior: The prior.
        names: Of the shared coordinates.
        mean: Of the posterior.
        covariance: Of the posterior.
    """
    influence = prior_influence(prior, mean, covariance)
    found = []
    pulled = np.flatnonzero((np.abs(influence.pull) > PULL) | (np.abs(influence.distance) > FAR))
    for at in sorted(pulled, key=lambda k: -abs(influence.pull[k]))[:NAMED]:
        distance = influence.distance[at]
        far = f", which lies {abs(distance):.1f} prior sds from the prior's mean" if abs(distance) > FAR else ""
        found.append(
            f"the prior pulls {names[at]} by {abs(influence.pull[at]):.1f} posterior sds{far}: "
            + CURE.format(name=names[at])
        )
    little = np.flatnonzero(influence.width > LITTLE)
    if len(little):
        listed = ", ".join(names[at] for at in little[:NAMED])
        more = f" and {len(little) - NAMED} more" if len(little) > NAMED else ""
        found.append(
            f"the data say little about {listed}{more}: the posterior is nearly as wide as the prior "
            f"({influence.width[little[0]]:.0%}). Read it as the prior, leave the term out, or collect more data"
        )
    return tuple(found)
