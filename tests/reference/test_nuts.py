"""NUTS finds known posteriors from a float32 process, and explains what it cannot use."""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.reference import NutsDraws, nuts

needs_numpyro = pytest.mark.skipif(
    importlib.util.find_spec("numpyro") is None, reason='NumPyro is not installed: pip install "natvi[numpyro]"'
)

MEAN = np.array([1.0, -2.0, 300.0])
SD = np.array([1.0, 0.1, 20.0])
CORRELATION = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, -0.3], [0.0, -0.3, 1.0]])
COVARIANCE = CORRELATION * np.outer(SD, SD)


def gaussian(x):
    return -0.5 * (x - MEAN) @ np.linalg.inv(COVARIANCE) @ (x - MEAN)


@pytest.fixture(scope="module")
def drawn() -> NutsDraws:
    return nuts(gaussian, MEAN, covariance=COVARIANCE, num_draws=3000, num_warmup=300, seed=1)


@needs_numpyro
def test_a_correlated_gaussian_is_recovered(drawn):
    x = drawn.flat()
    z_mean = (x.mean(axis=0) - MEAN) / (SD / np.sqrt(drawn.ess))
    # the mean of (x - mu)^2 / sd^2 - 1 has sd sqrt(2 / ess), with the ess of the squares, above ess / 3 here
    z_variance = (((x - MEAN) / SD) ** 2 - 1).mean(axis=0) / np.sqrt(2 / (drawn.ess / 3))
    assert np.all(np.abs(z_mean) < 4) and np.all(np.abs(z_variance) < 4)
    np.testing.assert_allclose(np.corrcoef(x.T), CORRELATION, atol=0.06)


@needs_numpyro
def test_draws_are_described(drawn):
    assert drawn.draws.shape == (2, 3000, 3) and drawn.draws.dtype == np.float64
    np.testing.assert_array_equal(drawn.flat()[3000:], drawn.draws[1])
    assert drawn.ess.shape == drawn.rhat.shape == (3,)
    assert np.all(drawn.ess > 1000) and np.all(drawn.rhat < 1.01)
    assert drawn.num_divergent == 0 and drawn.num_steps >= 6000
    assert np.all(drawn.accept_prob > 0.6) and np.all(drawn.step_size > 0)
    assert set(drawn.seconds) == {"compile", "warmup", "sampling", "total"}
    assert 0 < drawn.warmup_seconds < drawn.seconds["total"]
    assert not jax.config.jax_enable_x64


@needs_numpyro
def test_double_precision_is_real(drawn):
    # more digits than float32 has
    assert np.any(drawn.draws != drawn.draws.astype(np.float32))


@needs_numpyro
def test_pytree_variances_and_thinning():
    # parameters of a float32 process, as a pytree: the columns follow the leaves
    start = {"a": jnp.zeros(()), "b": jnp.zeros(2)}
    target = lambda t: -0.5 * t["a"] ** 2 - 0.5 * jnp.sum((t["b"] / np.array([0.1, 10.0])) ** 2)  # noqa: E731
    options = dict(covariance=np.array([1.0, 0.01, 100.0]), num_warmup=200, num_chains=1, seed=2)
    every = nuts(target, start, num_draws=600, **options)
    np.testing.assert_allclose(every.flat().std(axis=0), [1.0, 0.1, 10.0], rtol=0.3)
    third = nuts(target, start, num_draws=200, thinning=3, **options)
    np.testing.assert_array_equal(third.draws[0], every.draws[0, 2::3])  # same seed, same chain


@needs_numpyro
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"covariance": np.eye(2)}, r"covariance must be \(3, 3\)"),
        ({"covariance": np.zeros(3)}, "positive variances"),
        ({"covariance": np.array([1.0, -1.0, 1.0])}, "positive variances"),
        ({"covariance": np.diag([1.0, -1.0, 1.0])}, "positive variances"),
        ({"covariance": np.ones((3, 3)) * SD}, "not positive definite"),
        ({"positions": np.zeros((1, 3))}, r"positions must be \(2, 3\)"),
        ({"positions": np.full((2, 3), np.inf)}, "start of chain 0"),
        ({"num_draws": 0}, "num_draws must be at least 1"),
        ({"num_warmup": -1}, "num_warmup must be at least 0"),
    ],
)
def test_wrong_input_is_explained(options, words):
    with pytest.raises(ValueError, match=words):
        nuts(gaussian, MEAN, **options)


def test_without_numpyro_there_is_a_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro.infer", None)
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(ImportError, match=r"natvi\[numpyro\]"):
        nuts(gaussian, MEAN)
