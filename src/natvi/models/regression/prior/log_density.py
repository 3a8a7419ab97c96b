"""The log-density of a prior at draws of the shared coordinates."""

import jax
import jax.numpy as jnp
import numpy as np

from natvi.models.regression.prior.choice import Prior
from natvi.target.priors.omega_prior import OmegaPrior
from natvi.target.priors.scale_prior import ScalePrior
from natvi.x64 import float64


def log_prior(prior: Prior, theta: np.ndarray) -> np.ndarray:
    """Return log p of every draw `(s, g)`, constants included, as a density in the coordinates of the fit."""
    normal = np.isfinite(prior.sd)
    scaled = (theta[:, normal] - prior.mean[normal]) / prior.sd[normal]
    total = -0.5 * np.sum(scaled**2 + np.log(2 * np.pi), axis=1) - np.sum(np.log(prior.sd[normal]))
    with float64():
        for found in prior.scales.placed:
            term = ScalePrior.of(found.density, found.position, found.power)
            total = total + np.asarray(term.at(jnp.asarray(theta[:, found.position])))
        for covariance in prior.scales.covariances:
            omega = OmegaPrior.of(covariance.densities, covariance.eta, covariance.start)
            total = total + np.asarray(jax.vmap(omega.log_density)(jnp.asarray(theta[:, omega.own])))
    return total
