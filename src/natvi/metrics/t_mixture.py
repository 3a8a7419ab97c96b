"""A mixture of t distributions fitted to weighted draws: a proposal for marginals that nothing simpler fits.

Draw, weight, fit a mixture to the weighted draws, draw from it again: population Monte Carlo (Cappe, Douc, Guillin,
Marin and Robert 2008). Funnels, plateaus and bananas are all covered by a handful of parts, at the price of a few
rounds of draws.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natvi.special import gammaln

COMPONENTS, DOF, SWEEPS = 6, 6.0, 15
WIDE_SHARE, WIDE = 0.1, 4.0  # of the draws come from the whole, its covariance so many times as large


class TMixture(NamedTuple):
    """A mixture of multivariate t distributions.

    Attributes:
        shares: Of the parts; they sum to one.
        means: `(parts, g)`.
        factors: Lower triangular L of every part, its scale matrix being L L'.
        dof: Degrees of freedom of all parts.
    """

    shares: Float[np.ndarray, " parts"]
    means: Float[np.ndarray, "parts g"]
    factors: Float[np.ndarray, "parts g g"]
    dof: float = DOF

    def draw(self, num_draws: int, rng: np.random.Generator) -> Float[np.ndarray, "s g"]:
        """Draw from the mixture."""
        part = rng.choice(len(self.shares), num_draws, p=self.shares)
        z = rng.standard_normal((num_draws, self.means.shape[1]))
        z *= np.sqrt(self.dof / rng.chisquare(self.dof, num_draws))[:, None]
        return self.means[part] + np.einsum("sij,sj->si", self.factors[part], z)

    def distances(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "parts s"]:
        """Return squared distances in sds of the parts."""
        u = np.linalg.solve(self.factors, np.swapaxes(x[None] - self.means[:, None], 1, 2))
        return np.sum(u**2, axis=1)

    def log_parts(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "parts s"]:
        """Return log share + log density of every part."""
        g, nu = x.shape[1], self.dof
        constant = gammaln((nu + g) / 2) - gammaln(nu / 2) - 0.5 * g * np.log(nu * np.pi)
        scale = np.sum(np.log(np.diagonal(self.factors, axis1=1, axis2=2)), axis=1)
        kernel = -0.5 * (nu + g) * np.log1p(self.distances(x) / nu)
        return (np.log(self.shares) + constant - scale)[:, None] + kernel

    def log_density(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, " s"]:
        """Return the log density."""
        return np.logaddexp.reduce(self.log_parts(x), axis=0)


def fit_mixture(x: Float[np.ndarray, "s g"], rng: np.random.Generator) -> TMixture:
    """Fit a mixture to equally weighted draws by expectation maximisation, and add a wide part around all of them.

    In the expectation step draw s belongs to part k with probability rho_sk and has the weight
    u_sk = (nu + g) / (nu + distance_sk) there, so that far ones count less for mean and covariance.

    Args:
        x: Draws, of which some may be the same.
        rng: Chooses the draws at which the parts start.

    Returns:
        The mixture.
    """
    s, g = x.shape
    overall = np.cov(x.T).reshape(g, g)
    ridge = 1e-4 * np.diag(np.diag(overall))
    shares, means = np.full(COMPONENTS, 1 / COMPONENTS), x[rng.choice(s, COMPONENTS, replace=False)]
    covariances = np.repeat(overall[None] / 2, COMPONENTS, axis=0)
    for _ in range(SWEEPS):
        mixture = TMixture(shares, means, np.linalg.cholesky(covariances))
        logs = mixture.log_parts(x)
        rho = np.exp(logs - np.logaddexp.reduce(logs, axis=0))
        weight = rho * (mixture.dof + g) / (mixture.dof + mixture.distances(x))
        # two draws' worth of the overall covariance keep a small part from collapsing
        shares = (rho.sum(axis=1) + 1.0) / (s + COMPONENTS)
        means = (weight @ x) / weight.sum(axis=1)[:, None]
        errors = x[None] - means[:, None]
        scatter = np.einsum("ks,ksi,ksj->kij", weight, errors, errors, optimize=True)
        covariances = (scatter + 2 * overall) / (rho.sum(axis=1) + 2)[:, None, None] + ridge
    return TMixture(
        np.append((1 - WIDE_SHARE) * shares, WIDE_SHARE),
        np.concatenate([means, x.mean(axis=0)[None]]),
        np.linalg.cholesky(np.concatenate([covariances, WIDE * overall[None]])),
    )
