"""Moments of draws with less noise, by what is known of the score.

For every density p that vanishes at the end of its space, E grad log p = 0 and E z (grad log p)' = -I (Stein). With
u = C' grad log p in whitened coordinates z, for a Gaussian p both hold draw by draw with what the draws' mean and
covariance err by, so that (control variates of zero variance, Assaraf and Caffarel 1999; Mira, Solgi and Imparato 2013)

    m = E z + J^-1 E u,   V = E (z - Ez)(z - Ez)' + sym{(E z u' + I) J^-1},   J = diag E u^2,

have no noise, and little where p is close to a Gaussian. J is one in whitened coordinates of a Gaussian, and larger
where p is not one, so that less is corrected.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

COLUMNS = 64  # at once: of thousands no copy is made
GAIN = 0.7  # share of the noise that may be left where this pays
BEYOND = 3.5  # standard errors of the largest of many, from which the identities do not hold: walls, or no equilibrium


class Sharpened(NamedTuple):
    """Draws with better moments, and the share of a mean's noise that is left in them."""

    z: Float[np.ndarray, "s d"]
    noise: float


def sharpen(z: Float[np.ndarray, "s d"], u: Float[np.ndarray, "s d"], effective: float, full: bool) -> Sharpened | None:
    """Shift and stretch draws so that their moments have less noise; None where that does not pay.

    Args:
        z: Draws in whitened coordinates; where means alone are corrected, the better ones take their place.
        u: The gradient of log p in these, at the draws.
        effective: How many independent ones they are worth.
        full: Whether covariances are corrected too, not means alone.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> z = rng.standard_normal((400, 3))
        >>> better = sharpen(z, -z, 400.0, full=True)
        >>> bool(np.abs(better.z.mean(axis=0)).max() < 0.02), bool(np.abs(np.cov(better.z.T) - np.eye(3)).max() < 0.03)
        (True, True)
    """
    n, d = z.shape
    j = np.einsum("sd,sd->d", u, u) / n
    if not (np.all(np.isfinite(j)) and np.all(j > 0)):
        return None
    beyond = BEYOND + np.sqrt(2.0 * np.log(d))
    slope, middle = u.mean(axis=0), z.mean(axis=0)
    if np.max(np.abs(slope) / np.sqrt(j / effective)) > beyond:
        return None
    noise = 0.0
    for at in range(0, d, COLUMNS):
        some = slice(at, at + COLUMNS)
        noise = max(
            noise, float(np.max(np.var(z[:, some] + u[:, some] / j[some], axis=0) / np.var(z[:, some], axis=0)))
        )
    if not np.sqrt(noise) < GAIN:
        return None
    if not full:
        z += slope / j
        return Sharpened(z, float(np.sqrt(noise)))
    x = z - middle
    x = x @ _stretch(x, u, j, beyond * np.sqrt(2.0 / effective)).T
    return Sharpened(middle + slope / j + x, float(np.sqrt(noise)))


def _stretch(x: np.ndarray, u: np.ndarray, j: np.ndarray, most: float) -> np.ndarray:
    """Return the map that gives the draws the better covariance; one where the identity does not hold."""
    one = np.eye(x.shape[1])
    S, off = x.T @ x / len(x), x.T @ u / len(x) + one
    if np.max(np.abs(np.diagonal(off)) / np.sqrt(j)) > most:
        return one
    V = S + 0.5 * (off / j + (off / j).T)
    try:
        return np.linalg.cholesky(V) @ np.linalg.inv(np.linalg.cholesky(S))
    except np.linalg.LinAlgError:
        return one
