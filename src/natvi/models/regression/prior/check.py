"""The prior held against the data: do they contradict each other, does it pull, do the data add little to anything?

To first order, the posterior mean moves by Sigma grad log p(mu) for every unit by which the power of the prior is
raised (mu and Sigma being the posterior's): divided by posterior sds this is how hard the prior pulls. Of sds and
dispersions the density of the number itself counts, so that a flat one does not pull. Where the posterior of a
parameter is nearly as wide as its prior, the data have added little.

In units of the prior, u = (theta - m) / s, the posterior's precision is I + J, J being what the data tell. Along an
eigenvector of J with eigenvalue j, data that follow from the prior give a posterior mean u ~ N(0, j / (1 + j)). So
z = u sqrt((1 + j) / j) far beyond one says that they contradict each other, also where the prior has won (a small j).
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.words import WEAKLY
from natvi.run.compiled_code import quick_jit
from natvi.target.priors.omega_prior import OmegaPrior
from natvi.target.priors.scale_prior import ScalePrior
from natvi.x64 import float64

PULL = 0.5  # posterior sds
LITTLE = 0.9  # posterior sd over prior sd
MOVED = 1.0  # prior sds of a logarithm
FAR = 4.0  # z beyond which prior and data contradict each other
LEAST_INFORMATION = 1e-12
NAMED = 3


class PriorInfluence(NamedTuple):
    """How the prior acts on each shared coordinate.

    Attributes:
        pull: How far the prior moves the mean, in posterior sds.
        width: The posterior's sd over the prior's; NaN where the prior has none, and for an sd or a dispersion that
            the data have moved, since its logarithm is wide towards zero whatever they say.
        conflict: The z of the direction in which prior and data contradict each other most, shared out to the
            coordinates that make up that direction.
    """

    pull: np.ndarray
    width: np.ndarray
    conflict: np.ndarray


def prior_influence(prior: Prior, mean: np.ndarray, covariance: np.ndarray) -> PriorInfluence:
    """Return how the prior acts on a posterior with this mean and covariance of the shared coordinates."""
    sds = np.sqrt(np.diagonal(covariance))
    prior_means, prior_sds = _prior_moments(prior)
    moved = ~np.isfinite(prior.sd) & (np.abs(mean - prior_means) > MOVED * prior_sds)
    pull = covariance @ _gradient(prior, mean) / sds
    width = np.where(moved, np.nan, sds / prior_sds)
    return PriorInfluence(pull, width, _conflict(prior, mean, covariance))


def _conflict(prior: Prior, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    found = np.zeros(len(mean))
    at = np.flatnonzero(np.isfinite(prior.sd))
    if not len(at):
        return found
    s = prior.sd[at]
    inside = covariance[np.ix_(at, at)] / np.outer(s, s)
    values, V = np.linalg.eigh(0.5 * (inside + inside.T))  # 1 / (1 + j)
    u = V.T @ ((mean[at] - prior.mean[at]) / s)
    j = np.maximum(1.0 / np.clip(values, LEAST_INFORMATION, 1.0) - 1.0, LEAST_INFORMATION)
    z = u * np.sqrt((1.0 + j) / j)
    worst = int(np.argmax(np.abs(z)))
    found[at] = np.abs(z[worst] * V[:, worst])
    return found


def _gradient(prior: Prior, mean: np.ndarray) -> np.ndarray:
    grad = -(mean - prior.mean) / prior.sd**2
    with float64():
        alone = [ScalePrior.of(found.density, found.position, found.power) for found in prior.scales.placed]
        together = [OmegaPrior.of(found.densities, found.eta, found.start) for found in prior.scales.covariances]
        if not alone and not together:
            return grad
        slopes, more = _slopes(alone, together, mean)
        for found, slope in zip(prior.scales.placed, slopes, strict=True):
            grad[found.position] = float(slope)
        for omega, slope in zip(together, more, strict=True):
            grad[omega.own] = np.asarray(slope)
    return grad


@quick_jit
def _slopes(
    alone: list[ScalePrior], together: list[OmegaPrior], mean: Float[Array, " g"]
) -> tuple[list[Array], list[Array]]:
    """Return the gradients of the densities of dispersions, sds and correlations, in one program."""
    lone = [jax.grad(term.density_of_scale)(mean[term.start]) for term in alone]
    return lone, [jax.grad(term.density_of_sds)(mean[term.own]) for term in together]


def _prior_moments(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Return the prior's mean and sd of every coordinate; the sd is NaN for correlated sds and correlations."""
    means, sds = prior.mean.copy(), np.where(np.isfinite(prior.sd), prior.sd, np.nan)
    u = (np.arange(200) + 0.5) / 200
    for found in prior.scales.placed:
        logs = np.log([max(found.density.quantile(float(p)), 1e-300) for p in u])
        means[found.position] = np.mean(logs) / found.power
        sds[found.position] = np.std(logs) / abs(found.power)
    return means, sds


def prior_concerns(prior: Prior, names: list[str], mean: np.ndarray, covariance: np.ndarray) -> tuple[str, ...]:
    """Return a sentence for each way in which the prior decides, with parameter, size and cure; empty if it does not.

    Args:
        prior: The prior.
        names: Of the shared coordinates.
        mean: Of the posterior.
        covariance: Of the posterior.
    """
    influence = prior_influence(prior, mean, covariance)
    found, told = [], set()
    if np.linalg.norm(influence.conflict) > FAR:
        told = set(_largest(influence.conflict))
        at = int(np.argmax(influence.conflict))
        found.append(
            f"prior and data contradict each other about {_listed(names, sorted(told))}: the data lie "
            f"{np.linalg.norm(influence.conflict):.0f} sds from where the prior expects them, and the answer is a "
            f"compromise that neither supports; {_cure(prior, names, at)}"
        )
    for at in sorted(np.flatnonzero(np.abs(influence.pull) > PULL), key=lambda k: -abs(influence.pull[k]))[:NAMED]:
        if at not in told:
            size = abs(influence.pull[at])
            scale = " on the scale of the fit" if names[at].startswith("corr(") else ""
            found.append(
                f"the prior pulls {names[at]} by {size:.1f} posterior sds{scale}; {_cure(prior, names, int(at))}"
            )
    little = [int(at) for at in np.flatnonzero(influence.width > LITTLE) if at not in told]
    if little:
        found.append(
            f"the data say little about {_listed(names, little)}: the posterior is nearly as wide as the prior "
            f"({influence.width[little[0]]:.0%}). Read it as the prior, leave the term out, or collect more data"
        )
    return tuple(found)


def _cure(prior: Prior, names: list[str], at: int) -> str:
    """Return what to do about a prior that decides; sds and dispersions have densities, the others mean and sd."""
    name, example = names[at], "(mean, sd)" if np.isfinite(prior.sd[at]) else "('half_normal', scale)"
    if name.startswith("corr("):
        name, example = "corr", "('lkj', 2)"
    words = f"give a prior that you can defend, e.g. prior={{{name!r}: {example}}}"
    return words if prior.description.startswith(WEAKLY) else f"{words}, or prior='default'"


def _largest(conflict: np.ndarray) -> list[int]:
    """Return the coordinates that make up nine tenths of the direction."""
    order = np.argsort(-conflict)
    share = np.cumsum(conflict[order] ** 2) / np.sum(conflict**2)
    return [int(at) for at in order[: int(np.searchsorted(share, 0.9)) + 1]][:NAMED]


def _listed(names: list[str], which: list[int]) -> str:
    more = f" and {len(which) - NAMED} more" if len(which) > NAMED else ""
    return ", ".join(names[at] for at in which[:NAMED]) + more
