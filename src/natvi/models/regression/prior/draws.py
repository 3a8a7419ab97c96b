"""Draws from a prior: shared coordinates, as a model holds them."""

import numpy as np

from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.scales import CovariancePrior
from natvi.target.mixed.random_effects import omega_positions
from natvi.target.priors.scale_density import ScaleDensity


def draw_prior(prior: Prior, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the shared coordinates `(num_draws, g)` from their prior, in the coordinates of the fit."""
    theta = prior.mean + np.where(np.isfinite(prior.sd), prior.sd, 0.0) * rng.standard_normal(
        (num_draws, len(prior.mean))
    )
    for found in prior.scales.placed:
        x = _draw_density(found.density, num_draws, rng)
        theta[:, found.position] = np.log(x) / found.power
    for covariance in prior.scales.covariances:
        omega = _draw_omega(covariance, num_draws, rng)
        theta[:, covariance.start : covariance.start + omega.shape[1]] = omega
    return theta


def _draw_density(density: ScaleDensity, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    u = rng.uniform(size=num_draws)
    return np.maximum([density.quantile(float(value)) for value in u], 1e-300)


def _draw_omega(covariance: CovariancePrior, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw omega = vech(W*), W W' being the inverse of D R D."""
    r = len(covariance.densities)
    sds = np.stack([_draw_density(density, num_draws, rng) for density in covariance.densities], axis=1)
    root = sds[:, :, None] * draw_correlation_roots(r, covariance.eta, num_draws, rng)  # Sigma = L L'
    # W W' = L^-T L^-1: turned round, the upper triangular L^-T becomes a lower triangular factor by Cholesky
    inverse = np.linalg.inv(root)
    W = np.linalg.cholesky(np.swapaxes(inverse, 1, 2) @ inverse)
    omega = np.empty((num_draws, r * (r + 1) // 2))
    for (row, column), at in omega_positions(r).items():
        omega[:, at] = np.log(W[:, row, column]) if row == column else W[:, row, column]
    return omega


def draw_correlation_roots(r: int, eta: float, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the lower Cholesky factor of correlation matrices with density proportional to |R|^(eta - 1).

    By partial correlations (Lewandowski, Kurowicka and Joe 2009): those given k others are 2 b - 1 with
    b ~ Beta(a, a), a = eta + (r - 2 - k) / 2.

    Example:
        >>> L = draw_correlation_roots(3, 1.0, 5, np.random.default_rng(0))
        >>> bool(np.allclose(np.sum(L**2, axis=2), 1.0))
        True
    """
    L = np.zeros((num_draws, r, r))
    L[:, 0, 0] = 1.0
    for row in range(1, r):
        left = np.ones(num_draws)
        for column in range(row):
            a = eta + (r - 2 - column) / 2
            partial = 2 * rng.beta(a, a, size=num_draws) - 1
            L[:, row, column] = partial * np.sqrt(left)
            left = left * (1 - partial**2)
        L[:, row, row] = np.sqrt(left)
    return L
