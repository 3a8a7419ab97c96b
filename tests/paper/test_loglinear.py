"""The closed forms of the loglinear model against brute force: product quadrature and automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.linalg import DenseFactor, DiagonalFactor
from natvi.paper.loglinear import Loglinear
from natvi.x64 import float64
from strategies import hermite, quick_jit

TIGHT = {"rtol": 1e-9, "atol": 1e-9}
n, d = 12, 2


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def case(weight: float = 1.0) -> tuple[Loglinear, np.ndarray, np.ndarray]:
    """Return a model, a mean and a covariance."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(n), rng.uniform(-1, 1, n)])
    y = rng.poisson(np.exp(X @ [0.5, -0.8])).astype(float)
    root = np.array([[0.4, 0.0], [-0.2, 0.3]])
    return Loglinear(jnp.asarray(X), jnp.asarray(y), 2.0, weight), np.array([0.3, -0.6]), root @ root.T


def log_joint(model: Loglinear, theta: np.ndarray) -> np.ndarray:
    """Return log p(y, theta) for columns of theta, said with SciPy's densities."""
    rate = np.exp(np.asarray(model.X) @ theta)
    rows = scipy.stats.poisson.logpmf(np.asarray(model.y)[:, None], rate).sum(0)
    return model.weight * rows + scipy.stats.norm.logpdf(theta, 0.0, model.prior_sd).sum(0)


def gaussians(mu: np.ndarray, Sigma: np.ndarray) -> dict[str, CovarianceGaussian | PrecisionGaussian]:
    mean = jnp.asarray(mu)
    return {
        "dense C": CovarianceGaussian(mean, DenseFactor(jnp.asarray(np.linalg.cholesky(Sigma)))),
        "dense T": PrecisionGaussian(mean, DenseFactor(jnp.asarray(np.linalg.cholesky(np.linalg.inv(Sigma))))),
        "diagonal C": CovarianceGaussian(mean, DiagonalFactor(jnp.sqrt(jnp.diagonal(jnp.asarray(Sigma))))),
    }


def dense_covariance(gaussian: CovarianceGaussian | PrecisionGaussian) -> jax.Array:
    return jax.vmap(gaussian.covariance_product)(jnp.eye(d))


def test_value_is_the_joint_log_density():
    model, mu, _ = case(weight=3.0)
    np.testing.assert_allclose(model.value(jnp.asarray(mu)), log_joint(model, mu[:, None])[0], **TIGHT)


@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_elbo_against_quadrature(weight):
    model, mu, Sigma = case(weight)
    z, weights = hermite((40, 40))
    theta = mu[:, None] + np.linalg.cholesky(Sigma) @ z
    log_q = scipy.stats.multivariate_normal(mu, Sigma).logpdf(theta.T)
    brute = weights @ (log_joint(model, theta) - log_q)
    np.testing.assert_allclose(model.elbo(jnp.asarray(mu), jnp.asarray(Sigma)), brute, **TIGHT)


def test_gradients_against_automatic_differentiation():
    model, *point = case(2.5)
    mu, Sigma = map(jnp.asarray, point)
    by_mu, by_Sigma = quick_jit(jax.grad(model.elbo, (0, 1)))(mu, Sigma)
    np.testing.assert_allclose(model.grad_mu(mu, Sigma), by_mu, **TIGHT)
    np.testing.assert_allclose(model.grad_Sigma(mu, Sigma), by_Sigma, **TIGHT)


@pytest.mark.parametrize("kind", ["dense C", "dense T", "diagonal C"])
@pytest.mark.parametrize("entropy", [True, False])
def test_bound_in_the_factor(kind, entropy):
    model, mu, Sigma = case(2.5)
    gaussian = gaussians(mu, Sigma)[kind]

    def elbo(q):
        bound = model.elbo(q.mean, dense_covariance(q))
        return bound if entropy else bound - q.entropy()

    (expected, gradient), ours = quick_jit(lambda q: (jax.value_and_grad(elbo)(q), model.bound(q, entropy)))(gaussian)
    np.testing.assert_allclose(ours.elbo, expected, **TIGHT)
    np.testing.assert_allclose(ours.mean, gradient.mean, **TIGHT)
    # the derivative in an entry above the diagonal is nobody's business
    lower = np.asarray if kind == "diagonal C" else np.tril
    np.testing.assert_allclose(lower(*ours.factor), lower(*gradient.factor), **TIGHT)


def test_a_covariance_that_is_none_has_no_bound():
    model, mu, _ = case()
    assert np.isnan(model.elbo(jnp.asarray(mu), -jnp.eye(d)))
