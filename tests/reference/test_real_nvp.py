"""The flow is a real NVP, learns a Gaussian, and keeps its precision to itself."""

import importlib.util
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.reference import FlowFit, real_nvp
from natvi.reference.real_nvp import _build
from strategies import quick_jit

needs_flowjax = pytest.mark.skipif(
    importlib.util.find_spec("flowjax") is None, reason='FlowJAX is not installed: pip install "natvi[flows]"'
)

MEAN = np.array([0.5, -1.0, 0.0])
COVARIANCE = np.array([[1.0, 0.6, 0.2], [0.6, 0.8, 0.0], [0.2, 0.0, 0.5]])


SEEN = set()  # widths in which the log-density was asked


def gaussian(x):
    SEEN.add(x.dtype)
    quadratic = (x - MEAN) @ np.linalg.inv(COVARIANCE) @ (x - MEAN)
    return -0.5 * quadratic - 0.5 * np.log(np.linalg.det(2 * np.pi * COVARIANCE))


@pytest.fixture(scope="module")
def fitted() -> FlowFit:
    return real_nvp(gaussian, 3, num_layers=4, num_steps=600, step_size=5e-3, num_evaluation=2500, seed=1)


@pytest.mark.slow
@needs_flowjax
def test_a_gaussian_is_learnt(fitted):
    x = fitted.sample(4000, seed=2)
    np.testing.assert_allclose(x.mean(axis=0), MEAN, atol=0.25)
    np.testing.assert_allclose(np.cov(x.T), COVARIANCE, atol=0.25)
    # the density is normalised, so the bound is -KL: below zero, and close to it
    assert -0.1 < fitted.elbo < 4 * fitted.elbo_se
    assert 0 < fitted.elbo_se < 0.05
    assert fitted.trace.shape == (600,) and fitted.trace[:20].mean() < fitted.trace[-20:].mean()


@needs_flowjax
def test_draws_are_repeatable_and_wide(fitted):
    x = fitted.sample(1500, seed=3)
    assert x.shape == (1500, 3) and x.dtype == np.float64
    np.testing.assert_array_equal(x, fitted.sample(1500, seed=3))
    assert np.all(x[:10] != fitted.sample(10, seed=4))
    assert set(fitted.seconds) == {"compile", "run", "total"}
    assert not jax.config.jax_enable_x64


@needs_flowjax
def test_the_log_density_sees_double_precision(fitted):
    assert SEEN == {np.dtype("float64")}
    assert {leaf.dtype for leaf in jax.tree.leaves(eqx.filter(fitted.flow, eqx.is_inexact_array))} == {
        np.dtype("float32")
    }


@needs_flowjax
def test_layers_are_affine_couplings():
    dim, kept = 5, 2
    weights, rest = eqx.partition(_build(jax.random.key(0), dim, 1, 2 * dim), eqx.is_inexact_array)

    @quick_jit
    def push(weights, x):
        map_of = eqx.combine(weights, rest).transform_and_log_det
        return (*map_of(x), jax.jacobian(lambda x: map_of(x)[0])(x))

    x, other = jax.random.normal(jax.random.key(2), (2, dim))
    start, log_det, _ = push(weights, x)  # the identity, in reversed order
    np.testing.assert_array_equal(start[::-1], x)
    assert log_det == 0

    keys = jax.random.split(jax.random.key(1), 20)
    weights = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(keys[leaf.size % 20], leaf.shape), weights)
    y, log_det, jacobian = push(weights, x)
    # the kept part comes out as it went in; the log-determinant is that of the Jacobian
    np.testing.assert_allclose(y[::-1][:kept], x[:kept])
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian)[1], rtol=1e-4, atol=1e-5)
    assert abs(float(log_det)) > 1e-3
    # affine: the Jacobian does not depend on the moved part
    _, _, moved = push(weights, jnp.concatenate([x[:kept], other[kept:]]))
    np.testing.assert_allclose(np.diagonal(moved[::-1])[kept:], np.diagonal(jacobian[::-1])[kept:], rtol=1e-5)


@pytest.mark.parametrize(
    ("dim", "options", "words"),
    [
        (1, {}, "dim must be at least 2; got 1"),
        (3, {"num_steps": 0}, "num_steps must be positive; got 0"),
        (3, {"step_size": 0.0}, "step_size must be positive"),
    ],
)
def test_wrong_input_is_explained(dim, options, words):
    with pytest.raises(ValueError, match=words):
        real_nvp(gaussian, dim, **options)


@needs_flowjax
def test_an_infinite_bound_is_explained():
    with pytest.raises(ValueError, match="not finite"):
        real_nvp(lambda x: jnp.sum(x) * jnp.nan, 2, num_layers=1, num_steps=2, num_evaluation=2)


def test_without_flowjax_there_is_a_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "flowjax.bijections", None)
    monkeypatch.setitem(sys.modules, "flowjax", None)
    with pytest.raises(ImportError, match=r"natvi\[flows\]"):
        real_nvp(gaussian, 3)
