"""How good a Gaussian is: exact bound, test log-likelihood, accuracy, and discrepancy from reference draws."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.problems import Problem
from natvi.derivatives import exact_derivatives
from natvi.metrics import accuracy, mmd_measure

DRAWS = 1000  # S of the paper, for test log-likelihood and accuracy
MMD_DRAWS = 10_000  # the subsets of 1000 are taken from these
CHUNK = 50
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


class Score(NamedTuple):
    """What the tables print of one Gaussian; NaN where there is none."""

    elbo: float
    tll: float
    accuracy: float
    mmd: float


@jax.jit
def bound(target: Any, gaussian: Any) -> Float[Array, ""]:
    """Return the exact lower bound."""
    return exact_derivatives(target, gaussian).value


@jax.jit
def predictive(target: Any, rows: Any, gaussian: Any) -> Float[Array, ""]:
    """Return the test log-likelihood with infinitely many draws: a row's predictor is Gaussian, N(x'mu, x'Sigma x).

    Curves use this; draws would cost more than the fit.
    """
    mean, sd = rows.X @ gaussian.mean, jnp.sqrt(gaussian.row_variances(rows.X))
    total = jnp.full_like(mean, -jnp.inf)
    for z, log_weight in zip(NODES, np.log(WEIGHTS / WEIGHTS.sum()), strict=True):
        total = jnp.logaddexp(total, log_weight + target.family.log_density(rows.y, mean + sd * z, None))
    return jnp.mean(total)


def held_out(problem: Problem, draws: np.ndarray) -> tuple[float, float]:
    """Return test log-likelihood and, for classes, accuracy in percent, from draws of the coefficients.

    The same as `natvi.metrics.test_log_likelihood`, in one pass for both and compiled: there are 10^8 densities.
    """
    if problem.test is None:
        return np.nan, np.nan
    parts = [draws[k : k + CHUNK] for k in range(0, len(draws), CHUNK)]
    sums = [_over_draws(problem.target, problem.test, jnp.asarray(part)) for part in parts]
    log_sums, means = (np.array([np.asarray(part[k]) for part in sums]) for k in (0, 1))
    tll = float(np.mean(np.logaddexp.reduce(log_sums) - np.log(len(draws))))
    if not problem.has_classes:
        return tll, np.nan
    return tll, 100 * accuracy(means.sum(axis=0) / len(draws), np.asarray(problem.test.y).astype(int))


@jax.jit
def _over_draws(target: Any, rows: Any, draws: Float[Array, "s d"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Return log sum_s p(y_k | theta_s) and sum_s E(y_k | theta_s)."""
    eta = draws @ rows.X.T
    log_sum = jax.scipy.special.logsumexp(target.family.log_density(rows.y, eta, None), axis=0)
    return log_sum, jnp.sum(target.family.mean(eta), axis=0)


def score(problem: Problem, gaussian: Any, reference: np.ndarray | None, seed: int) -> Score:
    """Score a Gaussian; `reference` holds draws from the posterior, one in each row, or is None."""
    elbo = float(bound(problem.target, gaussian))
    if not np.isfinite(elbo):
        return Score(np.nan, np.nan, np.nan, np.nan)
    keys = jax.random.split(jax.random.key(seed + 1_000), MMD_DRAWS)
    draws = np.asarray(jax.vmap(gaussian.sample)(keys))
    mmd = np.nan if reference is None else mmd_measure(draws, reference).mean
    return Score(elbo, *held_out(problem, draws[:DRAWS]), mmd)
