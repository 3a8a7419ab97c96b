"""The exact bound: below the log marginal likelihood, equal to it where the posterior is Gaussian."""

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from natvi.derivatives import exact_derivatives
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowMatrix, ArrowVector
from natvi.target import Expected, LikelihoodRows, NormalPrior, RandomEffectsPrior, SumOfTerms
from natvi.x64 import float64
from strategies import (
    LIKELIHOODS,
    GroupedData,
    arrow_vector,
    dense_matrix,
    dense_vector,
    grouped_rows,
    panels,
    pattern_parts,
    quick_jit,
    random_data,
)

LOG_2PI = np.log(2 * np.pi)


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


@quick_jit
def derivatives(target: SumOfTerms, linear: ArrowVector, precision: ArrowMatrix) -> Expected:
    return exact_derivatives(target, ArrowPrecision.from_natural(linear, precision))


def build(name: str, data: GroupedData, y: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> SumOfTerms:
    """Assemble the model with random intercepts and normal priors on (beta, dispersion, omega)."""
    family = LIKELIHOODS[name].family
    rows, layout = grouped_rows(data)
    effects = RandomEffectsPrior(data.Z.shape[1], data.X.shape[1] + int(family.has_dispersion))
    prior = NormalPrior(jnp.asarray(mean), jnp.asarray(sd))
    return SumOfTerms((LikelihoodRows(rows, jnp.asarray(layout.place(y)), family), effects), (prior,))


# --- a tiny model: two groups, theta = (u_1, u_2, beta, omega) ---------------------------------------------

PRIOR_MEAN, PRIOR_SD = np.array([0.2, 0.9]), np.array([1.0, 0.2])
RESPONSES = {"poisson": np.array([2.0, 0.0, 1.0, 4.0, 3.0]), "bernoulli": np.array([1.0, 0.0, 1.0, 1.0, 1.0])}
STEPS = 60


def tiny_data() -> GroupedData:
    offset = np.array([0.1, -0.2, 0.0, 0.3, -0.1])
    return GroupedData(np.ones((5, 1)), np.ones((5, 1)), offset, np.array([0, 0, 0, 1, 1]))


def log_marginal(name: str, y: np.ndarray) -> float:
    """Integrate the four coordinates out: the two effects one by one for each (beta, omega)."""
    data = tiny_data()
    beta, w_beta = panels(-7.0, 7.0, 7)
    omega, w_omega = panels(-0.9, 2.7, 5)
    x, w_x = panels(-9.0, 9.0, 45)
    w_x = w_x * np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
    effect = np.exp(-omega)[:, None] * x  # u = e^{-omega} x
    total = scipy.stats.norm.pdf(beta, PRIOR_MEAN[0], PRIOR_SD[0])[:, None] * w_beta[:, None]
    total = total * scipy.stats.norm.pdf(omega, PRIOR_MEAN[1], PRIOR_SD[1]) * w_omega
    for group in (0, 1):
        log_p = 0.0
        for i in np.flatnonzero(data.group == group):
            eta = data.offset[i] + beta[:, None, None] + effect
            if name == "poisson":
                log_p = log_p + y[i] * eta - np.exp(eta) - scipy.special.gammaln(y[i] + 1)
            else:
                log_p = log_p - np.logaddexp(0.0, (1 - 2 * y[i]) * eta)
        total = total * (np.exp(log_p) @ w_x)
    return float(np.log(total.sum()))


class Fitted(NamedTuple):
    """The maximum of the bound: dense mean and precision."""

    target: SumOfTerms
    log_marginal: float
    elbo: float
    mean: np.ndarray
    precision: np.ndarray


def bound(target: SumOfTerms, mean: np.ndarray, precision: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return bound, E grad and E hess at a Gaussian given by dense mean and precision."""
    H = ArrowMatrix(*(jnp.asarray(part) for part in pattern_parts(precision, 1, 2)))
    elbo, grad, hess = derivatives(target, arrow_vector(precision @ mean, 1, 2), H)
    return float(elbo), dense_vector(grad), dense_matrix(hess)


@cache
def fitted(name: str) -> Fitted:
    """Iterate S <- -E hess, mu <- mu + S^-1 E grad, the step halved while the bound does not rise."""
    target = build(name, tiny_data(), RESPONSES[name], PRIOR_MEAN, PRIOR_SD)
    mean, H = np.array([0.0, 0.0, *PRIOR_MEAN]), 10 * np.eye(4)
    elbo, grad, hess = bound(target, mean, H)
    for _ in range(STEPS):
        step, risen = 1.0, -np.inf
        while not risen >= elbo - 1e-13 and step > 1e-6:
            new_H = H + step * (-hess - H)
            new_mean = mean + step * np.linalg.solve(new_H, grad)
            risen, new_grad, new_hess = bound(target, new_mean, new_H)
            step /= 2
        elbo, mean, H, grad, hess = risen, new_mean, new_H, new_grad, new_hess
    return Fitted(target, log_marginal(name, RESPONSES[name]), elbo, mean, H)


@pytest.mark.parametrize("name", RESPONSES)
def test_the_bound_lies_below_the_log_marginal_likelihood(name):
    fit = fitted(name)
    assert 0 < fit.log_marginal - fit.elbo < 0.1
    rng = np.random.default_rng(0)
    for spread in (0.01, 0.1, 0.5):
        for _ in range(10):
            factor = np.exp(spread * rng.standard_normal(4))
            mean = fit.mean + spread * rng.standard_normal(4)
            elbo, _, _ = bound(fit.target, mean, fit.precision * np.outer(factor, factor))
            # below the maximum, and so below the marginal likelihood: no Gaussian nearby does better
            assert elbo < fit.elbo


@pytest.mark.parametrize("name", RESPONSES)
def test_derivatives_vanish_at_the_fixed_point(name):
    fit = fitted(name)
    _, grad, hess = bound(fit.target, fit.mean, fit.precision)
    T = np.linalg.cholesky(fit.precision)
    # in units of posterior sds: T^-1 E grad and T^-1 (-E hess) T^-T - I
    assert np.abs(np.linalg.solve(T, grad)).max() < 1e-8
    assert np.abs(np.linalg.solve(T, np.linalg.solve(T, -hess).T) - np.eye(4)).max() < 1e-8


# --- a Gaussian model with known variances: the posterior is Gaussian and the bound is tight ---------------


@pytest.mark.parametrize("r", [1, 2])
def test_conjugate_model(r):
    """Priors on log sigma and omega so narrow that both are known: ELBO = log p(y), E grad = 0, S = -E hess."""
    p, narrow = 2, 1e-5
    data = random_data((3, 1, 6, 2), p, r, seed=1)
    n, d = data.num_groups, r * data.num_groups
    rng = np.random.default_rng(2)
    y = rng.normal(1.0, 1.5, len(data.group))
    sigma, omega = 0.8, {1: [0.3], 2: [0.3, -0.4, 0.1]}[r]
    W = np.array([[np.exp(0.3)]]) if r == 1 else np.array([[np.exp(0.3), 0.0], [-0.4, np.exp(0.1)]])
    mean = np.concatenate([[0.5, -0.5], [np.log(sigma)], omega])
    sd = np.concatenate([[2.0, 1.0], np.full(1 + len(omega), narrow)])
    target = build("gaussian", data, y, mean, sd)

    # y ~ N(offset + X m0, X S0 X' + Z (W W')^-1 Z' + sigma^2 I), theta | y in closed form
    A = np.zeros((len(y), d + p))
    _, layout = grouped_rows(data)
    for k in range(r):
        A[np.arange(len(y)), r * layout.place_of_group[data.group] + k] = data.Z[:, k]
    A[:, d:] = data.X
    prior_precision = np.zeros((d + p, d + p))
    prior_precision[:d, :d] = np.kron(np.eye(n), W @ W.T)
    prior_precision[d:, d:] = np.diag(sd[:p] ** -2)
    prior_mean = np.concatenate([np.zeros(d), mean[:p]])
    covariance = A @ np.linalg.inv(prior_precision) @ A.T + sigma**2 * np.eye(len(y))
    log_marginal = scipy.stats.multivariate_normal.logpdf(y, data.offset + A @ prior_mean, covariance)
    precision = prior_precision + A.T @ A / sigma**2
    linear = prior_precision @ prior_mean + A.T @ (y - data.offset) / sigma**2
    posterior_mean = np.linalg.solve(precision, linear)

    q = len(mean) - p
    whole = np.zeros((d + p + q, d + p + q))
    whole[: d + p, : d + p] = precision
    whole[d + p :, d + p :] = np.eye(q) / narrow**2
    theta = np.concatenate([posterior_mean, mean[p:]])
    H = ArrowMatrix(*(jnp.asarray(part) for part in pattern_parts(whole, r, n)))
    got = derivatives(target, arrow_vector(whole @ theta, r, n), H)
    np.testing.assert_allclose(got.value, log_marginal, rtol=1e-8)
    np.testing.assert_allclose(dense_vector(got.grad)[: d + p], 0.0, atol=1e-7)
    np.testing.assert_allclose(-dense_matrix(got.hess)[: d + p, : d + p], precision, rtol=1e-7, atol=1e-9)
