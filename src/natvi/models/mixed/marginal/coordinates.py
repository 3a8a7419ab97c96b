"""Coordinates in which the marginal of the shared parameters is close to a Gaussian: log sds, atanh of a correlation.

For two correlated random effects with sds s1, s2 and correlation rho = tanh(a), (W W')^-1 their covariance,

    omega_11 = -log s1 + log cosh a,    omega_21 = -sinh(a) / s2,    omega_22 = -log s2,

so that d omega / d (log s1, a, log s2) has the determinant cosh(a) / s2 up to sign. A correlation that may be close to
one is a curved ridge of omega, and a straight line in phi = (..., log s1, a, log s2). An sd that may be zero is the
other way round: a plateau of omega, and a funnel of phi. Functions take one point or many, along the last axis. What
is beyond the range of numbers becomes infinite or NaN without a warning; such points get the weight zero.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from natvi.target import SumOfTerms
from natvi.target.mixed.marginal import mixed_parts


def has_correlation(target: SumOfTerms) -> bool:
    """Whether the model has two correlated random effects, for which these coordinates are meant."""
    _, effects = mixed_parts(target)
    return effects.r == 2 and effects.correlated


def to_shared(phi: Any, xp: Any = jnp) -> Any:
    """Return theta_g; its last three coordinates are (omega_11, omega_21, omega_22). `xp` is jax.numpy or numpy."""
    log_s1, a, log_s2 = phi[..., -3], phi[..., -2], phi[..., -1]
    with np.errstate(over="ignore", invalid="ignore"):
        w21 = -xp.exp(-log_s2) * xp.sinh(a)
    omega = xp.stack([_log_cosh(a, xp) - log_s1, w21, -log_s2], axis=-1)
    return xp.concatenate([phi[..., :-3], omega], axis=-1)


def log_volume(phi: Any, xp: Any = jnp) -> Any:
    """Return log |d theta_g / d phi|."""
    return _log_cosh(phi[..., -2], xp) - phi[..., -1]


def from_shared(shared: np.ndarray) -> np.ndarray:
    """Return phi.

    Example:
        >>> from_shared(to_shared(np.array([2.0, 0.5, -1.0, 0.1]), np)).round(6).tolist()
        [2.0, 0.5, -1.0, 0.1]
    """
    w11, w21, w22 = shared[..., -3], shared[..., -2], shared[..., -1]
    with np.errstate(over="ignore", invalid="ignore"):
        a = np.arcsinh(-w21 * np.exp(-w22))
        phi = np.stack([_log_cosh(a, np) - w11, a, -w22], axis=-1)
    return np.concatenate([shared[..., :-3], phi], axis=-1)


def slopes(phi: np.ndarray) -> np.ndarray:
    """Return d theta_g / d phi at one point."""
    matrix = np.eye(len(phi))
    a, log_s2 = phi[-2], phi[-1]
    matrix[-3:, -3:] = [
        [-1.0, np.tanh(a), 0.0],
        [0.0, -np.exp(-log_s2) * np.cosh(a), np.exp(-log_s2) * np.sinh(a)],
        [0.0, 0.0, -1.0],
    ]
    return matrix


def volume_slopes(phi: np.ndarray) -> np.ndarray:
    """Return the gradient of `log_volume` at many points."""
    gradient = np.zeros_like(phi)
    gradient[..., -2], gradient[..., -1] = np.tanh(phi[..., -2]), -1.0
    return gradient


def _log_cosh(a: Any, xp: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return xp.logaddexp(a, -a) - np.log(2.0)
