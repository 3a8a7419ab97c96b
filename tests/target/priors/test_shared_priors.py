"""Expectations of the priors against brute force: random effects given omega, and the shared coordinates.

Where the integrand is a polynomial times exponentials of a few variables, a Gauss-Hermite product rule of sufficient
order is exact; for random intercepts composite Gauss-Legendre over omega reaches every variance.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from natvi.target import NormalPrior
from natvi.target.mixed.random_effects import expected_log_prior, omega_positions
from natvi.x64 import float64
from oracles import LOG_2PI, normal_rule
from strategies import dense_moments, hermite, quick_jit, random_gaussian


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


# --- the prior of the random effects -----------------------------------------------------------------------


def intercept_points(num: int) -> np.ndarray:
    """Draw (m, s, log_w, t, rho) over wide ranges, wherever E log p is finite in double precision."""
    rng = np.random.default_rng(0)
    points = np.column_stack(
        [
            rng.uniform(-30, 30, 8 * num),
            10 ** rng.uniform(-4, np.log10(30), 8 * num),
            rng.uniform(-30, 30, 8 * num),
            10 ** rng.uniform(-4, np.log10(30), 8 * num),
            rng.uniform(-0.95, 0.95, 8 * num),
        ]
    )
    finite = 2 * points[:, 2] + 2 * points[:, 3] ** 2 < 650
    return points[finite][:num]


def brute_intercept_prior(m: float, s: float, log_w: float, t: float, rho: float) -> float:
    """Integrate over (theta, omega) for r = 1; the integrand is quadratic in theta."""
    z, log_weight = normal_rule(14.0, 2.0 * t + 14.0)  # e^{2 t z} moves the mass to z = 2 t
    (x,), weight = hermite((3,))
    theta = m + s * (rho * z[:, None] + np.sqrt(1 - rho**2) * x)
    omega = log_w + t * z
    squares = theta**2 @ weight
    linear = (-0.5 * LOG_2PI + omega) @ np.exp(log_weight)
    return float(linear - 0.5 * np.sum(squares * np.exp(log_weight + 2 * omega)))


def prior_moments(columns: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Return the moments of (theta, omega) for r = 1 from columns (m, s, log_w, t, rho)."""
    m, s, log_w, t, rho = columns.T
    return jnp.asarray([m, log_w]), jnp.asarray([[s**2, rho * s * t], [rho * s * t, t**2]])


def test_prior_of_random_intercepts():
    points = intercept_points(120)
    got = expected_log_prior(1, *prior_moments(points))
    brute = [brute_intercept_prior(*point) for point in points]
    assert np.all(np.isfinite(brute))
    np.testing.assert_allclose(got, brute, rtol=1e-7, atol=0)


def test_prior_that_overflows_is_minus_infinity_not_nan():
    got = expected_log_prior(1, *prior_moments(np.array([[0.0, 1.0, 10.0, 30.0, 0.0]])))
    assert np.asarray(got)[0] == -np.inf


def log_prior(r: int, x: np.ndarray) -> np.ndarray:
    """Return log p(theta | omega) for columns x = (theta, omega), from the definition of W."""
    theta, omega = x[:r], x[r:]
    W = np.zeros((x.shape[1], r, r))
    for (row, column), position in omega_positions(r).items():
        W[:, row, column] = np.exp(omega[position]) if row == column else omega[position]
    whitened = np.einsum("nlk,ln->nk", W, theta)
    log_det = sum(np.log(W[:, k, k]) for k in range(r))
    return -0.5 * r * LOG_2PI + log_det - 0.5 * np.sum(whitened**2, axis=1)


def brute_prior(r: int, m: np.ndarray, V: np.ndarray, order: int) -> float:
    """Integrate log p: `order` nodes for each log W_kk, three for the rest, in which it is of degree four."""
    first = [r + omega_positions(r)[k, k] for k in range(r)]
    permutation = first + [k for k in range(len(m)) if k not in first]
    z, w = hermite((order,) * r + (3,) * (len(m) - r))
    x = np.empty_like(z)
    x[permutation] = m[permutation][:, None] + np.linalg.cholesky(V[np.ix_(permutation, permutation)]) @ z
    return float(w @ log_prior(r, x))


# r, nodes, largest sd of log W_kk for which they are exact, number of random cases
@pytest.mark.parametrize(("r", "order", "widest", "num"), [(1, 60, 3.0, 20), (2, 40, 2.0, 10), (3, 11, 0.5, 2)])
def test_prior_of_random_effects(r, order, widest, num):
    rng = np.random.default_rng(r)
    size = r + r * (r + 1) // 2
    moments = []
    for _ in range(num):
        draw = rng.standard_normal((size, size + 2))
        V = np.corrcoef(draw)
        sds = 10 ** rng.uniform(-3, np.log10(30), size)
        for k in range(r):
            sds[r + omega_positions(r)[k, k]] = widest * rng.uniform(0.01, 1)
        moments.append((rng.uniform(-5, 5, size), V * np.outer(sds, sds)))
    m = jnp.asarray(np.stack([a for a, _ in moments], axis=-1))
    V = jnp.asarray(np.stack([b for _, b in moments], axis=-1))
    got = quick_jit(expected_log_prior, static_argnums=0)(r, m, V)
    np.testing.assert_allclose(got, [brute_prior(r, *pair, order) for pair in moments], rtol=1e-7, atol=0)


# --- priors of the shared coordinates ----------------------------------------------------------------------


def test_normal_prior():
    gaussian = random_gaussian(2, 4, 3, seed=0, scale=2.0, mean_scale=3.0)
    mean, Sigma = dense_moments(gaussian)
    m, sd = mean[-4:], np.sqrt(np.diag(Sigma)[-4:])
    prior = NormalPrior(jnp.asarray([0.0, 1.0, -2.0, 30.0]), jnp.asarray([1e-2, 1.0, 10.0, 3.0]))
    got = quick_jit(lambda prior, gaussian: prior.expected(gaussian))(prior, gaussian)
    (x,), w = hermite((3,))
    theta = m[:, None] + sd[:, None] * x
    brute = scipy.stats.norm.logpdf(theta, prior.mean[:, None], prior.sd[:, None]) @ w
    np.testing.assert_allclose(got.value, brute.sum(), rtol=1e-12)
    np.testing.assert_allclose(got.grad.shared, (prior.mean - m) / prior.sd**2, rtol=1e-12)
    np.testing.assert_allclose(got.hess.shared, -np.diag(1 / np.square(prior.sd)), rtol=1e-12)
    for part in (got.grad.local, got.hess.local, got.hess.cross):
        assert np.all(np.asarray(part) == 0.0)
