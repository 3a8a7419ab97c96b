"""The posterior of a small mixed model, as exactly as weighted draws can tell: the truth for the study of verdicts.

The random effects are integrated out by adaptive quadrature. A mixture of t distributions is fitted to weighted draws
of the shared coordinates and drawn from again, until the last draws are worth enough (population Monte Carlo: Cappe,
Douc, Guillin, Marin and Robert 2008); where they are not, NUTS samples the same marginal. Half of the draws come from
the proposals of the marginal method, which know plateaus: a correlation near one whose effect has with a chance of one
in a thousand an sd of zero owes half of its variance to that.
"""

from typing import Any

import numpy as np

from experiments.memory import Arrays
from experiments.mixed_problems import MixedProblem
from natvi.metrics.psis import resample, smooth_weights
from natvi.metrics.t_mixture import COMPONENTS, TMixture, fit_mixture
from natvi.models.mixed.marginal.chart import Chart
from natvi.models.mixed.marginal.density import MarginalDensity
from natvi.models.mixed.marginal.method import Positions, look_around
from natvi.models.mixed.marginal.proposal import Mixture, draw_mixture
from natvi.models.mixed.marginal.straight import fixed_effects
from natvi.models.mixed.posterior import MixedFit
from natvi.reference import nuts
from natvi.target.mixed.marginal import marginal_log_density
from natvi.x64 import float64

ROUNDS = (2048, 4096, 8192, 16384, 32768)  # draws; the first round is never enough
LEAST_EFFECTIVE, LARGEST_K = 2000, 0.7
NUTS: dict[str, Any] = {"num_chains": 4, "num_draws": 2000, "num_warmup": 500}
SETTINGS: dict[str, Any] = {
    "proposals": "mixtures, and those of the marginal method",
    "components": COMPONENTS,
    "draws": ROUNDS,
    "least_effective": LEAST_EFFECTIVE,
    "largest_k": LARGEST_K,
    "nuts": NUTS,
}


def _both(
    near: TMixture, chart: Chart, parts: Mixture, number: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw half from what was found and half from what was seen at first, plateaus with little mass included."""
    first, _ = draw_mixture(parts, number // 2, int(rng.integers(2**31)))
    draws = np.concatenate([chart.to_shared(near.draw(number // 2, rng)), first])
    x = chart.from_shared(draws)
    seen = np.logaddexp.reduce([np.log(share) + part.log_density(draws) for share, part in parts], axis=0)
    return draws, np.logaddexp(near.log_density(x) - chart.log_volume(x), seen) - np.log(2.0)


def find_truth(problem: MixedProblem, seed: int, force_nuts: bool = False) -> Arrays:
    """Return means and sds of the shared coordinates and of what the tables show, and how they were found."""
    fit = problem.gva.model
    assert isinstance(fit, MixedFit)
    density = MarginalDensity(problem.built.target, problem.posterior)
    fixed = fixed_effects(problem.built.target, problem.posterior, fit.prior.mean, fit.prior.sd)
    seen = look_around(density, *fit.shared_moments(), positions(fit), fixed)
    parts: Mixture = [(seen.rest, seen.main), *seen.plateaus]
    draws, log_q = draw_mixture(parts, 2048, seed)
    found = smooth_weights(density.values(draws) - log_q)
    rng = np.random.default_rng(seed)
    for number in ROUNDS:
        near = fit_mixture(seen.chart.from_shared(draws[resample(found.weights, 2048, rng)]), rng)
        draws, log_q = _both(near, seen.chart, parts, number, rng)
        found = smooth_weights(density.values(draws) - log_q)
        if number > ROUNDS[0] and found.effective > LEAST_EFFECTIVE and found.k < LARGEST_K:
            break
    weights, k, effective = found.weights, found.k, found.effective
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
    found = {}
    for name, values in (("shared", draws), ("table", fit.readings(draws))):
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
