"""The triple in BlackJAX's form: the same calls as BlackJAX's own, and the right answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natvi

PRECISION = np.array([[2.0, 0.6], [0.6, 1.0]])


def logdensity(p):
    error = jnp.stack([p["a"] - 1.0, p["b"][0] + 2.0])
    return -0.5 * error @ jnp.asarray(PRECISION, error.dtype) @ error


def run(algorithm, steps):
    state = algorithm.init({"a": jnp.zeros(()), "b": jnp.zeros(1)})
    keys = jax.random.split(jax.random.key(0), steps)
    return jax.jit(lambda s: jax.lax.scan(lambda s, k: algorithm.step(k, s), s, keys))(state)


def test_a_scan_of_steps_finds_a_gaussian():
    algorithm = natvi.vi_algorithm(logdensity, step_size=0.01)
    state, infos = run(algorithm, 3000)
    draws = algorithm.sample(jax.random.key(1), state, 4000)
    assert draws["a"].shape == (4000,) and draws["b"].shape == (4000, 1)
    both = np.column_stack([draws["a"], draws["b"][:, 0]])
    np.testing.assert_allclose(both.mean(axis=0), [1.0, -2.0], atol=0.1)
    np.testing.assert_allclose(np.cov(both.T), np.linalg.inv(PRECISION), atol=0.12)
    assert float(infos.elbo[-1]) > float(infos.elbo[0])


def test_it_is_called_as_those_of_blackjax_are():
    blackjax = pytest.importorskip("blackjax")
    import optax

    theirs = blackjax.meanfield_vi(logdensity, optax.adam(1e-2))
    for algorithm in (theirs, natvi.vi_algorithm(logdensity, structure="diagonal")):
        state = algorithm.init({"a": jnp.zeros(()), "b": jnp.zeros(1)})
        state, info = algorithm.step(jax.random.key(0), state)
        assert np.isfinite(float(info.elbo))
        assert algorithm.sample(jax.random.key(1), state, num_samples=3)["b"].shape == (3, 1)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (logdensity, {"structure": "arrow"}, "'dense' or 'diagonal'"),
        (logdensity, {"optimizer": "vogn"}, "needs rows of data"),
        (logdensity, {"optimizer": "sgd"}, "optimizer must be"),
        (3.0, {}, "must be a function"),
    ],
)
def test_bad_input_gets_a_clear_answer(function, options, message):
    with pytest.raises(ValueError, match=message):
        natvi.vi_algorithm(function, **options)
