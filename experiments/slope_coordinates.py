"""Coordinates in which NUTS can walk through the posterior of two correlated random effects, one of which may be zero.

From phi = (..., log s1, a, log s2) of `natvi.models.mixed.marginal.coordinates`, with the correlation tanh(a), to

    x = (..., log s1, b, t),    a = b / sqrt(1 + (NARROW / s2)^2),    log s2 = t - 4 SOFT softplus(-(t - EDGE) / SOFT).

For s2 well above NARROW these are phi. Where s2 goes to zero, the prior of omega_21 = -sinh(a) / s2 confines a to a
funnel, which b straightens, and log s2 runs over many units of a plateau, which t shortens to a fifth.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.models.mixed.marginal.coordinates import from_shared, log_volume
from natvi.models.mixed.marginal.coordinates import to_shared as shared_of_phi

NARROW, EDGE, SOFT, STRETCH = 0.1, -2.0, 0.5, 4.0


def to_shared(x: Any) -> tuple[Any, Any]:
    """Return theta_g of one point, and log |d theta_g / d x|."""
    b, t = x[-2], x[-1]
    log_s2, log_slope = _stretched(t)
    log_narrowing = -0.5 * jnp.logaddexp(0.0, 2.0 * (jnp.log(NARROW) - log_s2))
    phi = jnp.concatenate([x[:-2], jnp.stack([b * jnp.exp(log_narrowing), log_s2])])
    return shared_of_phi(phi), log_volume(phi) + log_narrowing + log_slope


def to_walk(shared: np.ndarray) -> np.ndarray:
    """Return x of draws `(s, g)` of theta_g."""
    x = from_shared(shared)
    log_s2 = x[:, -1].copy()
    grid = np.linspace(-30.0, 30.0, 60_001)
    x[:, -1] = np.interp(log_s2, np.asarray(_stretched(grid)[0]), grid)
    x[:, -2] *= np.sqrt(1.0 + (NARROW * np.exp(-log_s2)) ** 2)
    return x


def _stretched(t: Any) -> tuple[Any, Any]:
    """Return log s2 and the logarithm of its slope in t."""
    away = -(t - EDGE) / SOFT
    return t - STRETCH * SOFT * jax.nn.softplus(away), jnp.log1p(STRETCH * jax.nn.sigmoid(away))
