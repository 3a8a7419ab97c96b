"""The six recipes with every rule recover Gaussian targets."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structures as st
from natvi import optimize, recipes
from natvi.derivatives.per_example import CurvatureGradient
from natvi.fit.algorithm import compose
from natvi.precision import float64
from natvi.target.function import FunctionTarget

STEPS = 1500
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def falling(first):
    """A step size that falls like 1/t after the first hundreds of steps."""
    return lambda count: first / (1.0 + count / 100.0)


RULES = {
    "plain": (lambda: optimize.plain(falling(0.1)), "euclidean"),
    "plain natural": (lambda: optimize.plain(falling(0.1), natural=True), "natural"),
    "adam": (lambda: optimize.adam(falling(0.05)), "euclidean"),
    "nadam": (lambda: optimize.nadam(falling(0.05)), "natural"),
    "snngm": (lambda: optimize.snngm(falling(0.02)), "natural"),
    "nagm": (lambda: optimize.nagm(falling(0.2), ratio=1.0), "natural"),
}
ALGORITHMS = {
    ("dense covariance", "euclidean"): recipes.algorithm_1e,
    ("dense covariance", "natural"): recipes.algorithm_1n,
    ("dense precision", "euclidean"): recipes.algorithm_2e,
    ("dense precision", "natural"): recipes.algorithm_2n,
    ("block covariance", "natural"): recipes.algorithm_1s,
    ("arrow precision", "natural"): recipes.algorithm_2s,
}


def quadratic(theta, P, m):
    x = (jnp.concatenate([theta.local.T.ravel(), theta.shared]) if hasattr(theta, "local") else theta) - m
    return -0.5 * x @ P @ x


def gaussian_target(name):
    """Return a Gaussian target that the structure can represent, with its moments."""
    truth = st.random_gaussian(name, 2, 9)
    Sigma, mean = st.covariance(truth), st.flat(truth.mean)
    return FunctionTarget(quadratic, (jnp.asarray(np.linalg.inv(Sigma)), jnp.asarray(mean))), mean, Sigma


def run(algorithm, start, steps=STEPS, seed=0):
    keys = jax.random.split(jax.random.key(seed), steps)
    body = quick_jit(lambda s, ks: jax.lax.scan(lambda s, k: (algorithm.step(s, k), None), s, ks)[0])
    return body(algorithm.init(start), keys).gaussian


@pytest.mark.parametrize(
    ("rule", "order"), [*((rule, 1) for rule in RULES), ("plain", 2), ("plain natural", 2), ("snngm", 2)]
)
@pytest.mark.parametrize("name", ["dense covariance", "dense precision"])
def test_dense_targets_are_recovered(name, rule, order):
    with float64():
        make, kind = RULES[rule]
        target, mean, Sigma = gaussian_target(name)
        found = run(ALGORITHMS[name, kind](target, make(), order=order), st.STRUCTURES[name](2))
        tolerance = 0.02 if rule == "snngm" else 1e-3  # its steps have a fixed length
        np.testing.assert_allclose(st.flat(found.mean), mean, atol=tolerance)
        np.testing.assert_allclose(st.covariance(found), Sigma, atol=2 * tolerance)


@pytest.mark.parametrize("rule", ["plain natural", "nadam", "snngm", "nagm"])
@pytest.mark.parametrize("name", ["block covariance", "arrow precision"])
def test_sparse_targets_are_recovered(name, rule):
    with float64():
        target, mean, Sigma = gaussian_target(name)
        found = run(ALGORITHMS[name, "natural"](target, RULES[rule][0]()), st.STRUCTURES[name](2))
        tolerance = 0.03 if rule == "snngm" else 2e-3
        np.testing.assert_allclose(st.flat(found.mean), mean, atol=tolerance)
        np.testing.assert_allclose(st.covariance(found), Sigma, atol=2 * tolerance)


@pytest.mark.parametrize(
    "name", ["dense covariance", "dense precision", "block covariance", "arrow precision", "diagonal"]
)
def test_pga_reaches_its_noise_floor(name):
    with float64():
        target, mean, Sigma = gaussian_target(name)
        algorithm = compose(target, optimize.pga(0.004), type(st.STRUCTURES[name](2)))
        found = run(algorithm, st.STRUCTURES[name](2), steps=4000)
        assert np.abs(st.flat(found.mean) - mean).max() < 0.35
        assert np.abs(np.sqrt(np.diag(st.covariance(found)) / np.diag(Sigma)) - 1).max() < 0.35


@pytest.mark.parametrize(
    "name", ["diagonal", "dense covariance", "dense precision", "block covariance", "arrow precision"]
)
def test_vogn_finds_the_mean(name):
    with float64():
        target, mean, _Sigma = gaussian_target(name)
        rule = optimize.vogn(0.05)
        gaussian = st.STRUCTURES[name](2)
        state = rule.init(gaussian)
        curvature = state.S  # a constant curvature: the momentum and the solve are what is tested

        def step(carry, _):
            q, state = carry
            return rule.step(
                q, state, CurvatureGradient(jnp.zeros(()), jax.grad(target.value)(q.mean), curvature)
            ), None

        gaussian, state = quick_jit(lambda carry: jax.lax.scan(step, carry, None, length=1500)[0])((gaussian, state))
        np.testing.assert_allclose(st.flat(gaussian.mean), mean, atol=0.02)
        np.testing.assert_allclose(st.covariance(gaussian), np.eye(len(mean)), atol=1e-6)


def test_mistakes_are_explained():
    target, *_ = gaussian_target("dense covariance")
    for bad in (0.0, -1.0, float("nan")):
        for make in (optimize.adam, optimize.nadam, optimize.snngm, optimize.nagm, optimize.pga, optimize.vogn):
            with pytest.raises(ValueError, match="step size must be positive"):
                make(bad)
    with pytest.raises(ValueError, match="order must be 1"):
        recipes.algorithm_1n(target, order=3)
    with pytest.raises(ValueError, match="updates a PrecisionGaussian; got a CovarianceGaussian"):
        recipes.algorithm_2n(target).init(st.STRUCTURES["dense covariance"](2))
    with pytest.raises(ValueError, match="with a BlockFactor"):
        recipes.algorithm_1s(target).init(st.STRUCTURES["dense covariance"](2))


def test_snngm_normalises_jointly_and_scales_by_the_length():
    with float64():
        q = st.random_gaussian("dense covariance", 3, 1)
        rule = optimize.snngm(0.01, beta=0.9)
        rng = np.random.default_rng(0)
        from natvi.derivatives.first_order import BoundGradient

        gradient = BoundGradient(jnp.zeros(()), st.random_vector(q.mean, rng), st.random_on_pattern(q.factor, rng))
        moved, _ = rule.step(q, rule.init(q), gradient)
        change = np.concatenate(
            [st.flat(moved.mean) - st.flat(q.mean), (st.dense(moved.factor) - st.dense(q.factor)).ravel()]
        )
        np.testing.assert_allclose(np.linalg.norm(change), 0.01 * np.sqrt(3 + 6), rtol=1e-12)
