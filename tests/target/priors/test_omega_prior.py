"""Priors of sds and correlations as densities of omega, against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from natvi.linalg import ArrowVector
from natvi.target import NormalPrior
from natvi.target.mixed.random_effects import omega_positions
from natvi.target.point_mass import PointMass
from natvi.target.priors.omega_prior import OmegaPrior, log_lkj_constant, log_sds
from natvi.target.priors.scale_density import ScaleDensity
from natvi.target.priors.scale_prior import ScalePrior
from natvi.x64 import float64
from strategies import dense_moments, hermite, panels, quick_jit, random_gaussian

HALF_NORMAL, HALF_T = ScaleDensity("half_normal", (1.5,)), ScaleDensity("half_t", (3.0, 2.0))
EXPONENTIAL, LOGNORMAL = ScaleDensity("exponential", (0.8,)), ScaleDensity("lognormal", (0.2, 1.3))
GAMMA, HALF_CAUCHY = ScaleDensity("gamma", (2.0, 1.5)), ScaleDensity("half_cauchy", (2.0,))
FROZEN = {
    HALF_NORMAL: scipy.stats.halfnorm(scale=1.5).logpdf,
    HALF_T: lambda x: np.log(2) + scipy.stats.t(3).logpdf(x / 2) - np.log(2),
    EXPONENTIAL: scipy.stats.expon(scale=1 / 0.8).logpdf,
    LOGNORMAL: scipy.stats.lognorm(1.3, scale=np.exp(0.2)).logpdf,
    GAMMA: scipy.stats.gamma(2, scale=1 / 1.5).logpdf,
    HALF_CAUCHY: scipy.stats.halfcauchy(scale=2).logpdf,
}


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def at_point(omega: np.ndarray, before: int = 0) -> ArrowVector:
    return ArrowVector(jnp.zeros((1, 0)), jnp.concatenate([jnp.zeros(before), jnp.asarray(omega)]))


def precision_factor(r: int, omega: np.ndarray) -> np.ndarray:
    W = np.zeros((r, r))
    for (row, column), at in omega_positions(r).items():
        W[row, column] = np.exp(omega[at]) if row == column else omega[at]
    return W


def sds_and_correlations(r: int, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    W = precision_factor(r, omega)
    covariance = np.linalg.inv(W @ W.T)
    sds = np.sqrt(np.diag(covariance))
    return sds, covariance / np.outer(sds, sds)


def brute_value(r: int, omega: np.ndarray, densities: tuple, eta: float) -> float:
    """Take the density of (s, R) from SciPy and the Jacobian from central differences."""

    def image(omega: np.ndarray) -> np.ndarray:
        sds, R = sds_and_correlations(r, omega)
        return np.concatenate([sds, R[np.tril_indices(r, -1)]])

    h = 1e-5
    columns = [(image(omega + h * e) - image(omega - h * e)) / (2 * h) for e in np.eye(len(omega))]
    jacobian = np.linalg.slogdet(np.column_stack(columns))[1]
    sds, R = sds_and_correlations(r, omega)
    prior = sum(float(FROZEN[density](s)) for density, s in zip(densities, sds, strict=True))
    return prior + log_lkj_constant(r, eta) + (eta - 1) * np.linalg.slogdet(R)[1] + jacobian


@pytest.mark.parametrize("densities", [(HALF_NORMAL, HALF_T), (EXPONENTIAL, LOGNORMAL, GAMMA)])
@pytest.mark.parametrize("eta", [1.0, 2.5])
def test_value_is_the_density_of_sds_and_correlations_with_its_jacobian(densities, eta):
    r = len(densities)
    prior = OmegaPrior.of(densities, eta, start=2)
    for seed in range(4):
        omega = np.random.default_rng(seed).normal(size=r * (r + 1) // 2)
        brute = brute_value(r, omega, densities, eta)
        assert float(prior.value(at_point(omega, 2))) == pytest.approx(brute, abs=1e-7)


def test_log_sds():
    for r in (1, 2, 3, 4):
        omega = np.random.default_rng(r).normal(size=r * (r + 1) // 2)
        np.testing.assert_allclose(log_sds(r, jnp.asarray(omega)), np.log(sds_and_correlations(r, omega)[0]))


def test_lkj_integrates_to_one():
    for eta in (0.7, 1.0, 3.0):
        expected = scipy.stats.beta(eta, eta).logpdf(0.65) - np.log(2)  # (rho + 1) / 2 is Beta(eta, eta)
        assert log_lkj_constant(2, eta) + (eta - 1) * np.log(1 - 0.3**2) == pytest.approx(expected)
    # 3 x 3: partial correlations make |R| a product, and dR = (1 - a^2)^(1/2) (1 - b^2)^(1/2) da db dc
    x, w = panels(-1, 1, 40)
    outer, inner = w @ (1 - x**2) ** (1.5), w @ (1 - x**2)
    assert np.exp(log_lkj_constant(3, 2.0)) * outer**2 * inner == pytest.approx(1.0)


def test_random_intercept_density_integrates_to_one():
    omega, w = panels(-25, 60, 200)
    for density in (HALF_NORMAL, HALF_T, EXPONENTIAL, LOGNORMAL, GAMMA, HALF_CAUCHY):
        values = ScalePrior.of(density, 0, -1.0).at(jnp.asarray(omega))
        np.testing.assert_allclose(values, FROZEN[density](np.exp(-omega)) - omega, rtol=1e-9, atol=1e-9)
        assert w @ np.exp(np.asarray(values)) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("density", [HALF_NORMAL, HALF_T, EXPONENTIAL, LOGNORMAL, GAMMA], ids=lambda d: d.name)
def test_expectation_of_one_scale(density, sign):
    gaussian = random_gaussian(1, 3, 4, seed=3, scale=1.5)
    mean, Sigma = dense_moments(gaussian)
    m, sd = mean[-2], np.sqrt(Sigma[-2, -2])
    prior = ScalePrior.of(density, 1, sign)
    got = quick_jit(lambda prior, gaussian: prior.expected(gaussian))(prior, gaussian)
    z, w = panels(-12, 12, 60)
    w = w * scipy.stats.norm.pdf(z)
    values = FROZEN[density](np.exp(sign * (m + sd * z))) + sign * (m + sd * z)
    np.testing.assert_allclose(got.value, w @ values, rtol=1e-8)
    # Stein: E f' = E z f / sd, E f'' = E (z^2 - 1) f / sd^2
    np.testing.assert_allclose(got.grad.shared, [(w * z) @ values / sd], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(got.hess.shared, [[(w * (z**2 - 1)) @ values / sd**2]], rtol=1e-6, atol=1e-7)
    assert got.grad.local.shape == (1, 4) and got.hess.cross.shape == (1, 1, 4)
    assert not np.any(np.asarray(got.hess.cross))


@pytest.mark.parametrize(
    ("densities", "order", "scale", "tolerance"),
    [((HALF_NORMAL, HALF_T), 40, 0.8, 1e-5), ((EXPONENTIAL, LOGNORMAL, HALF_NORMAL), 8, 0.3, 2e-3)],
)
def test_expectation_of_correlated_sds(densities, order, scale, tolerance):
    r = len(densities)
    size = r * (r + 1) // 2
    gaussian = random_gaussian(r, size + 1, 2, seed=r, scale=scale)
    mean, Sigma = dense_moments(gaussian)
    m, V = mean[-size:], Sigma[-size:, -size:]
    prior = OmegaPrior.of(densities, 2.0, start=1)
    got = quick_jit(lambda prior, gaussian: prior.expected(gaussian))(prior, gaussian)
    z, w = hermite((order,) * size)
    root = np.linalg.cholesky(V)
    every = jax.vmap(lambda omega: prior.value(at_point(omega, 1)))
    values = np.asarray(quick_jit(every)(jnp.asarray((m[:, None] + root @ z).T)))
    inverse = np.linalg.inv(root)
    np.testing.assert_allclose(got.value, w @ values, rtol=tolerance)
    np.testing.assert_allclose(got.grad.shared, inverse.T @ (z @ (w * values)), atol=30 * tolerance)
    outer = (w * values * z) @ z.T - (w @ values) * np.eye(size)
    np.testing.assert_allclose(got.hess.shared, inverse.T @ outer @ inverse, atol=1e3 * tolerance)


def test_a_point_has_the_value_and_its_derivatives():
    prior = OmegaPrior.of((HALF_T, HALF_NORMAL), 1.5, start=0)
    omega = jnp.asarray([0.3, -0.4, 0.1])
    got = quick_jit(lambda omega: prior.expected(PointMass(at_point(omega))))(omega)

    def value(omega):
        return prior.value(at_point(omega))

    np.testing.assert_allclose(got.value, value(omega), rtol=1e-12)
    np.testing.assert_allclose(got.grad.shared, quick_jit(jax.grad(value))(omega), rtol=1e-10)
    np.testing.assert_allclose(got.hess.shared, quick_jit(jax.hessian(value))(omega), rtol=1e-10)


def test_an_infinite_sd_switches_the_normal_off():
    gaussian = random_gaussian(1, 3, 2, seed=1)
    sd = np.array([1.0, np.inf, 2.0])
    some, rest = NormalPrior(jnp.zeros(3), jnp.asarray(sd)), sd[[0, 2]]
    got = some.expected(gaussian)
    mean, Sigma = dense_moments(gaussian)
    squares = (mean[-3:] ** 2 + np.diag(Sigma)[-3:])[[0, 2]]
    np.testing.assert_allclose(got.value, np.sum(scipy.stats.norm.logpdf(0, 0, rest) - squares / rest**2 / 2))
    np.testing.assert_array_equal(got.grad.shared[1], 0.0)
    np.testing.assert_array_equal(np.diag(got.hess.shared), [-1, 0, -0.25])
    assert np.isfinite(some.value(gaussian.mean))


def test_a_lone_effect_is_refused():
    with pytest.raises(ValueError, match="2 or more random effects per group, not 1"):
        OmegaPrior.of((HALF_T,), 1.0, 0)
