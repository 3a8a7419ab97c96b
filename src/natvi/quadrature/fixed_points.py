"""Points that stand for a standard normal in several variables: evenly spread, antithetic, with covariance one.

Half of the points are multiples, modulo one, of the powers of 1/phi, phi being the root of phi^(d+1) = phi + 1, through
the normal quantile; they are whitened, and the other half are their negatives. Their mean over a function of degree
three is exact, and the points are the same every time.
"""

from functools import cache

import numpy as np

from natvi.special import ndtri


@cache
def fixed_points(d: int, count: int) -> np.ndarray:
    """Return points `(d, count)` of equal weight; `count` is even and at least twice d.

    Example:
        >>> z = fixed_points(3, 64)
        >>> bool(np.allclose(z.mean(axis=1), 0)), bool(np.allclose(z @ z.T / 64, np.eye(3)))
        (True, True)
    """
    root = 2.0
    for _ in range(60):
        root = (1.0 + root) ** (1.0 / (d + 1))
    steps = root ** -np.arange(1.0, d + 1)
    z = ndtri((0.5 + np.outer(steps, np.arange(1, count // 2 + 1))) % 1.0)
    z = np.linalg.solve(np.linalg.cholesky(z @ z.T / z.shape[1]), z)
    whole = np.concatenate([z, -z], axis=1)
    whole.flags.writeable = False
    return whole


@cache
def sobol_points(d: int, least: int, seed: int) -> np.ndarray:
    """Return points `(count, d)` of equal weight: scrambled Sobol points, whitened, and their negatives.

    In many dimensions the multiples above lie close to planes; these do not. The count is the next power of two, and at
    least twice d.

    Example:
        >>> z = sobol_points(3, 50, seed=0)
        >>> z.shape, bool(np.allclose(z.T @ z / 64, np.eye(3)))
        ((64, 3), True)
    """
    from scipy.stats import qmc  # takes longer to import than most fits to run

    half = 2 ** int(np.ceil(np.log2(max(least / 2, d, 2))))
    z = ndtri(np.clip(qmc.Sobol(d, rng=seed).random(half), 1e-12, 1 - 1e-12))
    z = np.linalg.solve(np.linalg.cholesky(z.T @ z / half), z.T).T
    whole = np.concatenate([z, -z])
    whole.flags.writeable = False
    return whole
