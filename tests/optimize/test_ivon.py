"""IVON: unbiased curvature, a positive precision, the authors' update, and schedules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi import optimize
from natvi.derivatives.per_example import CurvatureGradient
from natvi.derivatives.stein import stein_curvature
from natvi.gaussian import CovarianceGaussian
from natvi.gaussian.starts import dense_covariance, diagonal_covariance
from natvi.optimize import Cosine, ivon
from natvi.run.algorithm import compose
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.target.rows import FunctionRows

rows = {"x": jnp.asarray(np.random.default_rng(0).normal(size=(40, 3)), jnp.float32)}


def likelihood(theta, rows):
    return -jax.nn.softplus(rows["x"] @ theta)


TARGET = FunctionRows(likelihood, rows, IndependentNormal.around_zero(3, 2.0), num_rows=80)
GAUSSIAN = diagonal_covariance(jnp.array([0.3, -0.2, 0.5], jnp.float32), 0.4)


def test_the_curvature_is_unbiased():
    keys = jax.random.split(jax.random.key(0), 20_000)
    found = jax.jit(jax.vmap(lambda key: stein_curvature(TARGET, GAUSSIAN, key)))(keys)
    thetas = GAUSSIAN.mean + 0.4 * jax.random.normal(jax.random.key(1), (20_000, 3))
    hessians = jax.jit(jax.vmap(lambda t: -jnp.diag(jax.hessian(TARGET.value)(t))))(thetas)
    gradients = jax.jit(jax.vmap(jax.grad(TARGET.value)))(thetas)
    for estimate, exact in ((found.curvature, hessians), (found.mean, gradients)):
        error = np.hypot(np.std(estimate, axis=0), np.std(exact, axis=0)) / np.sqrt(20_000)
        assert np.all(np.abs(np.mean(estimate, axis=0) - np.mean(exact, axis=0)) < 4.5 * error)


def test_the_update_is_the_authors():
    n, delta, h, sigma = 50.0, 0.02, 0.3, (50 * 0.32) ** -0.5
    start = diagonal_covariance(jnp.array([0.7], jnp.float32), sigma)
    rule = ivon(0.1, beta1=0.9, beta2=0.99)
    g_hat, h_hat = 0.4, -2.0  # of the mean loss
    gradient = CurvatureGradient(jnp.zeros(()), -n * jnp.array([g_hat + delta * 0.7]), n * jnp.array([h_hat + delta]))
    moved, state = rule.step(start, rule.init(start), gradient)
    new_h = 0.99 * h + 0.01 * h_hat + 0.5 * 0.01**2 * (h - h_hat) ** 2 / (h + delta)
    assert float(state.S[0]) == pytest.approx(n * (new_h + delta), rel=1e-5)
    assert float(moved.mean[0]) == pytest.approx(0.7 - 0.1 * (g_hat + delta * 0.7) / (new_h + delta), rel=1e-5)
    assert float(moved.factor.values[0]) == pytest.approx((n * (new_h + delta)) ** -0.5, rel=1e-5)


def test_the_precision_stays_positive_whatever_comes():
    start = diagonal_covariance(jnp.zeros(4, jnp.float32), 1.0)
    rule = ivon(0.1, beta2=0.5)
    for curvature in (-1e3, -1.0, 0.0, 1e6):
        gradient = CurvatureGradient(jnp.zeros(()), jnp.zeros(4), jnp.full(4, curvature))
        _, state = rule.step(start, rule.init(start), gradient)
        assert (state.S >= 0.5).all()


def test_a_gaussian_is_recovered():
    data = {"y": jnp.asarray(np.random.default_rng(1).normal(1.0, 1.0, 100), jnp.float32)}
    target = FunctionRows(lambda t, r: -0.5 * (r["y"] - t[0]) ** 2, data, IndependentNormal.around_zero(1, 1e3), 100)
    recipe = compose(target, ivon(Cosine(0.2, 3000), beta2=0.99), CovarianceGaussian)
    state = recipe.init(diagonal_covariance(jnp.zeros(1, jnp.float32), 0.3))
    keys = jax.random.split(jax.random.key(0), 3000)
    state = jax.jit(lambda s, k: jax.lax.scan(lambda s, k: (recipe.step(s, k), None), s, k)[0])(
        jax.tree.map(lambda a: jnp.asarray(a, jnp.asarray(a).dtype), state), keys
    )
    assert float(state.gaussian.mean[0]) == pytest.approx(float(data["y"].mean()), abs=0.02)
    assert float(state.gaussian.factor.values[0]) == pytest.approx(0.1, rel=0.15)


def test_it_is_for_independent_coordinates_of_rows():
    recipe = compose(TARGET, ivon(), CovarianceGaussian)
    dense = dense_covariance(GAUSSIAN.mean, 0.4)
    with pytest.raises(ValueError, match="independent coordinates"):
        stein_curvature(TARGET, dense, jax.random.key(0))
    with pytest.raises(ValueError, match=r"not order=2"):
        compose(TARGET, ivon(), CovarianceGaussian, order=2)
    with pytest.raises(ValueError, match="beta2"):
        ivon(beta2=1.0)
    assert "ivon" in recipe.move.rule.name


def test_schedules_are_values():
    assert Cosine(0.1, 100) == Cosine(0.1, 100) and optimize.adam(Cosine(0.1, 100)) is optimize.adam(Cosine(0.1, 100))
    assert float(Cosine(0.1, 100, end=0.5)(100)) == pytest.approx(0.05)
    for wrong in (
        {"peak": 0.0, "steps": 10},
        {"peak": 0.1, "steps": 10, "warmup": 10},
        {"peak": 1.0, "steps": 5, "end": 2.0},
    ):
        with pytest.raises(ValueError, match="cosine schedule"):
            Cosine(**wrong)
