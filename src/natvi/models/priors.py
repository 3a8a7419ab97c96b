"""Priors on the shared coordinates: independent normals, stated in words.

The paper's prior is N(0, 10^2) on every shared coordinate: the fixed effects, and omega, the logarithms of the
diagonal and the entries below the diagonal of the Cholesky factor W of the random effects' precision. For
Gaussian responses the default is that prior for data of unit scale, carried back to the user's scale: an intercept
of 251 under N(0, 10^2) would be a trap.
"""

from typing import NamedTuple

import numpy as np

from natvi.target.random_effects import omega_positions

WIDTH = 10.0


class Prior(NamedTuple):
    """Mean and sd of every shared coordinate, and a sentence for the summary."""

    mean: np.ndarray
    sd: np.ndarray
    description: str


def choose_prior(prior: str, family: str, y: np.ndarray, X: np.ndarray, Z: np.ndarray, has_dispersion: bool) -> Prior:
    """Return the prior for (beta, dispersion, omega).

    Args:
        prior: "default" or "paper".
        family: The name of the family.
        y: The response.
        X: The fixed-effects design `(N, p)`.
        Z: The random-effects design `(N, r)`.
        has_dispersion: Whether a dispersion parameter follows the coefficients.

    Returns:
        The prior, on the user's scale.
    """
    if prior not in ("default", "paper"):
        raise ValueError(f"prior must be 'default' or 'paper', not {prior!r}.")
    p, r = X.shape[1], Z.shape[1]
    size = p + int(has_dispersion) + r * (r + 1) // 2
    if prior == "paper" or family != "gaussian":
        return Prior(np.zeros(size), np.full(size, WIDTH), "N(0, 10²) on every fixed effect and on ω (paper)")
    scale = float(np.std(y))
    mean, sd = np.zeros(size), np.full(size, WIDTH)
    spread = _spread(X)
    constant = spread == 0
    if constant.any():
        mean[np.flatnonzero(constant)[0]] = float(np.mean(y)) / float(X[0, constant][0])
    sd[:p] = WIDTH * scale / np.where(constant, 1.0, spread)
    mean[p] = np.log(scale)
    z_scale = np.where(_spread(Z) == 0, 1.0, _spread(Z))
    for (row, column), position in omega_positions(r).items():
        at = p + 1 + position
        if row == column:
            mean[at] = np.log(z_scale[row] / scale)  # log W_kk is minus a log sd
        else:
            sd[at] = WIDTH * z_scale[row] / scale
    words = (
        f"scaled to the data: intercept N({np.mean(y):.4g}, {WIDTH * scale:.4g}²), slopes N(0, (10 sd(y)/sd(x))²), "
        "log sds N(log sd(y), 10²)"
    )
    return Prior(mean, sd, words)


def _spread(columns: np.ndarray) -> np.ndarray:
    """Return the sd of each column, exactly zero for constant ones."""
    if len(columns) == 0:
        return np.zeros(columns.shape[1])
    constant = np.all(columns == columns[0], axis=0)
    return np.where(constant, 0.0, np.std(columns, axis=0))
