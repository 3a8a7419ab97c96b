"""The posterior of a small mixed model, as exactly as weighted draws can tell: the truth for the study of verdicts.

The random effects are integrated out by adaptive quadrature. A mixture of t distributions is fitted to weighted draws
of the shared coordinates and drawn from again, until the last draws are worth enough (population Monte Carlo: Cappe,
Douc, Guillin, Marin and Robert 2008); where they are not, NUTS samples the same marginal.
"""

from typing import Any

import numpy as np
from scipy.special import gammaln

from experiments.memory import Arrays
from experiments.mixed_problems import MixedProblem
from natvi.metrics.psis import resample, smooth_weights
from natvi.models.mixed_fit import MixedFit
from natvi.models.mixed_marginal import Positions, draw_marginal
from natvi.models.mixed_marginal_density import MarginalDensity
from natvi.models.variance import component_draws
from natvi.precision import float64
from natvi.reference import nuts
from natvi.target.marginal import marginal_log_density

COMPONENTS, DOF, SWEEPS = 6, 6.0, 15
WIDE_SHARE, WIDE = 0.1, 4.0  # of the draws come from the whole, its covariance so many times as large
ROUNDS = (2048, 4096, 8192, 16384)  # draws; the first round is never enough
LEAST_EFFECTIVE, LARGEST_K = 2000, 0.7
NUTS: dict[str, Any] = {"num_chains": 2, "num_draws": 1500, "num_warmup": 500}
SETTINGS: dict[str, Any] = {
    "components": COMPONENTS,
    "draws": ROUNDS,
    "least_effective": LEAST_EFFECTIVE,
    "largest_k": LARGEST_K,
    "nuts": NUTS,
}


def find_truth(problem: MixedProblem, seed: int, force_nuts: bool = False) -> Arrays:
    """Return means and sds of the shared coordinates and of what the tables show, and how they were found."""
    fit = problem.gva.model
    assert isinstance(fit, MixedFit)
    density = MarginalDensity(problem.built.target, problem.posterior)
    first = draw_marginal(density, *fit.shared_moments(), positions(fit), fit.num_rows)
    draws, weights = first.shared, first.weights
    k, effective = first.k, 0.0
    rng = np.random.default_rng(seed)
    for number in ROUNDS:
        mixture = fit_mixture(draws[resample(weights, 2048, rng)], rng)
        draws = mixture.draw(number, rng)
        found = smooth_weights(density.values(draws) - mixture.log_density(draws))
        weights, k, effective = found.weights, found.k, found.effective
        if number > ROUNDS[0] and effective > LEAST_EFFECTIVE and k < LARGEST_K:
            break
    how = {"k": k, "effective": effective, "divergent": 0, "rhat": 1.0, "by_nuts": False}
    if force_nuts or effective <= LEAST_EFFECTIVE or k > LARGEST_K:
        chains = sample_marginal(problem, draws[resample(weights, 2048, rng)], seed)
        # chains that hardly move between a mode and a plateau are worth less than draws with usable weights
        if force_nuts or k > LARGEST_K or chains.ess.min() > effective:
            draws = chains.flat()
            weights = np.full(len(draws), 1.0 / len(draws))
            how |= {"effective": chains.ess.min(), "divergent": chains.num_divergent}
            how |= {"rhat": chains.rhat.max(), "by_nuts": True}
    return how | moments(fit, draws, weights)


def moments(fit: MixedFit, draws: np.ndarray, weights: np.ndarray) -> Arrays:
    """Return mean and sd of the shared coordinates, and of fixed effects with variance components."""
    table = np.concatenate([draws[:, : len(fit.fixed_names)], component_draws(fit, draws)], axis=1)
    found = {}
    for name, values in (("shared", draws), ("table", table)):
        mean = weights @ values
        found |= {f"{name}_mean": mean, f"{name}_sd": np.sqrt(weights @ (values - mean) ** 2)}
    return found


def positions(fit: MixedFit) -> Positions:
    """Return where log dispersion, log sds and the other entries of omega stand."""
    log_sds = list(fit.log_sd_positions().values())
    slanted = [at for at in range(fit.omega_start, len(fit.shared_names())) if at not in log_sds]
    return Positions(list(fit.dispersion_position().values()), log_sds, slanted)


def sample_marginal(problem: MixedProblem, near: np.ndarray, seed: int) -> Any:
    """Sample the marginal by NUTS, from starts and with a mass matrix taken from draws that are about right."""
    target, local = problem.built.target, problem.posterior.mean.local
    with float64():
        return nuts(
            lambda shared: marginal_log_density(target, shared, local),
            near.mean(axis=0),
            covariance=np.cov(near.T),
            positions=near[: NUTS["num_chains"]],
            seed=seed,
            target_accept=0.9,
            max_tree_depth=7,
            **NUTS,
        )


class Mixture:
    """A mixture of multivariate t distributions."""

    def __init__(self, shares: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> None:
        self.shares, self.means, self.dof = shares, means, DOF
        self.factors = np.linalg.cholesky(covariances)

    def draw(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `(number, g)`."""
        part = rng.choice(len(self.shares), number, p=self.shares)
        z = rng.standard_normal((number, self.means.shape[1]))
        z *= np.sqrt(self.dof / rng.chisquare(self.dof, number))[:, None]
        return self.means[part] + np.einsum("sij,sj->si", self.factors[part], z)

    def distances(self, x: np.ndarray) -> np.ndarray:
        """Return squared distances `(parts, s)` in sds of the parts."""
        u = np.linalg.solve(self.factors, np.swapaxes(x[None] - self.means[:, None], 1, 2))
        return np.sum(u**2, axis=1)

    def log_parts(self, x: np.ndarray) -> np.ndarray:
        """Return log share + log density of every part, `(parts, s)`."""
        g, nu = x.shape[1], self.dof
        constant = gammaln((nu + g) / 2) - gammaln(nu / 2) - 0.5 * g * np.log(nu * np.pi)
        scale = np.sum(np.log(np.diagonal(self.factors, axis1=1, axis2=2)), axis=1)
        kernel = -0.5 * (nu + g) * np.log1p(self.distances(x) / nu)
        return (np.log(self.shares) + constant - scale)[:, None] + kernel

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return the log density `(s,)`."""
        return np.logaddexp.reduce(self.log_parts(x), axis=0)


def fit_mixture(x: np.ndarray, rng: np.random.Generator) -> Mixture:
    """Fit a mixture to equally weighted draws by expectation maximisation, and add a wide part around all of them.

    In the expectation step draw s belongs to part k with probability rho_sk and has the weight
    u_sk = (nu + g) / (nu + distance_sk) there, so that far ones count less for mean and covariance.
    """
    s, g = x.shape
    overall = np.cov(x.T).reshape(g, g)
    ridge = 1e-4 * np.diag(np.diag(overall))
    shares, means = np.full(COMPONENTS, 1 / COMPONENTS), x[rng.choice(s, COMPONENTS, replace=False)]
    covariances = np.repeat(overall[None] / 2, COMPONENTS, axis=0)
    for _ in range(SWEEPS):
        mixture = Mixture(shares, means, covariances)
        logs = mixture.log_parts(x)
        rho = np.exp(logs - np.logaddexp.reduce(logs, axis=0))
        weight = rho * (mixture.dof + g) / (mixture.dof + mixture.distances(x))
        # two draws' worth of the overall covariance keep a small part from collapsing
        shares = (rho.sum(axis=1) + 1.0) / (s + COMPONENTS)
        means = (weight @ x) / weight.sum(axis=1)[:, None]
        errors = x[None] - means[:, None]
        scatter = np.einsum("ks,ksi,ksj->kij", weight, errors, errors, optimize=True)
        covariances = (scatter + 2 * overall) / (rho.sum(axis=1) + 2)[:, None, None] + ridge
    return Mixture(
        np.append((1 - WIDE_SHARE) * shares, WIDE_SHARE),
        np.concatenate([means, x.mean(axis=0)[None]]),
        np.concatenate([covariances, WIDE * overall[None]]),
    )
