"""Independent normal priors, flat coordinates included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from natvi import optimize
from natvi.gaussian import CovarianceGaussian, diagonal_covariance
from natvi.run.algorithm import compose
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.target.rows import FunctionRows
from natvi.x64 import float64

MEAN, SD, THETA = np.array([0.5, -1.0, 2.0]), np.array([2.0, 0.5, 3.0]), np.array([1.0, 0.3, -4.0])


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


@pytest.mark.parametrize("flat", [False, True])
def test_value_gradient_and_precision(flat):
    """A coordinate of infinite sd counts for nothing."""
    kept = slice(2 if flat else 3)
    sd = np.append(SD[:2], np.inf if flat else SD[2])
    prior = IndependentNormal(jnp.asarray(MEAN), jnp.asarray(sd))
    expected = scipy.stats.norm.logpdf(THETA, MEAN, SD)[kept].sum()
    np.testing.assert_allclose(prior.value(jnp.asarray(THETA)), expected, rtol=1e-12)
    variances = np.array([0.1, 0.2, 0.3])
    spread = -0.5 * np.sum((variances / SD**2)[kept])
    found = prior.expected_value(jnp.asarray(THETA), jnp.asarray(variances))
    np.testing.assert_allclose(found, expected + spread, rtol=1e-12)
    gradient = np.where(np.isinf(sd), 0.0, -(THETA - MEAN) / SD**2)
    np.testing.assert_allclose(prior.gradient(jnp.asarray(THETA)), gradient, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(prior.value)(jnp.asarray(THETA)), gradient, rtol=1e-12)
    np.testing.assert_allclose(prior.precision, np.where(np.isinf(sd), 0.0, SD**-2.0), rtol=1e-12)


def test_a_step_of_vogn_with_a_precision_of_zero():
    """S = beta2 S + (1 - beta2) (sum g^2 + precision),  mu += alpha m / (S (1 - beta1)) after one step."""
    precision, X = jnp.array([2.0, 0.3, 0.0]), jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)))
    prior = IndependentNormal(jnp.zeros(3), precision**-0.5)
    target = FunctionRows(lambda theta, X: -0.5 * (X @ theta - 1.0) ** 2, X, prior, 6)
    start = diagonal_covariance(jnp.asarray(THETA), 0.2)
    algorithm = compose(target, optimize.vogn(0.1, 0.9, 0.99), CovarianceGaussian)
    moved = algorithm.step(algorithm.init(start), jax.random.key(3))
    theta = start.sample(jax.random.key(3))
    gradients = np.asarray(target.row_gradients(theta))
    S = 0.99 * 25.0 + 0.01 * (np.sum(gradients**2, axis=0) + precision)
    g = gradients.sum(axis=0) - THETA * precision
    np.testing.assert_allclose(moved.gaussian.factor.values, S**-0.5, rtol=1e-10)
    np.testing.assert_allclose(moved.gaussian.mean, THETA + 0.1 * g / S, rtol=1e-10)
    assert np.isfinite(moved.elbo)
