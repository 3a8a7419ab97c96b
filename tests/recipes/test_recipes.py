"""The six recipes with every rule recover random Gaussian targets, on every structure."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structures as st
from natvi import optimize, recipes
from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.linalg import ArrowVector
from natvi.run.algorithm import compose
from natvi.target import GroupTarget
from natvi.target.function import FunctionTarget
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.target.rows import FunctionRows
from natvi.x64 import float64
from strategies import quick_jit

STEPS = 1500
SEEDS = (9, 10)  # two random targets for each case, with one compilation


def falling(first, after=100):
    """A step size that falls like 1/t after the first hundreds of steps."""
    return lambda count: first / (1.0 + count / after)


RULES = {
    "plain": (lambda: optimize.plain(falling(0.1, 500)), "euclidean"),
    "plain natural": (lambda: optimize.plain(falling(0.1), natural=True), "natural"),
    "adam": (lambda: optimize.adam(falling(0.05)), "euclidean"),
    "nadam": (lambda: optimize.nadam(falling(0.05)), "natural"),
    "snngm": (lambda: optimize.snngm(falling(0.02)), "natural"),
    "nagm": (lambda: optimize.nagm(falling(0.2), ratio=1.0), "natural"),
}
ALGORITHMS = {
    (CovarianceGaussian, "euclidean"): recipes.algorithm_1e,
    (CovarianceGaussian, "natural"): recipes.algorithm_1n,
    (PrecisionGaussian, "euclidean"): recipes.algorithm_2e,
    (PrecisionGaussian, "natural"): recipes.algorithm_2n,
}
SPARSE = {  # the natural recipes that are written for one pattern
    "block covariance": recipes.algorithm_1s,
    "local-global covariance": recipes.algorithm_1s,
    "arrow precision": recipes.algorithm_2s,
}
STRUCTURES = ["diagonal", "dense covariance", "dense precision", "block covariance", "arrow precision"]
OTHERS = [name for name in st.STRUCTURES if name not in STRUCTURES]
SECOND_ORDER = {  # every rule on dense factors, three rules each on the others
    "diagonal": ("plain natural", "adam", "nagm"),
    "dense covariance": tuple(RULES),
    "dense precision": tuple(RULES),
    "block covariance": ("plain natural", "adam", "nagm"),
    "arrow precision": ("plain natural", "nadam", "snngm"),
}
CASES = [
    (name, rule, order)
    for name in STRUCTURES
    for order, rules in ((1, RULES), (2, SECOND_ORDER[name]))
    for rule in rules
] + [(name, rule, order) for name in OTHERS for rule, order in (("nadam", 1), ("plain natural", 2))]


def recipe(name: str, kind: str) -> Any:
    """Return the recipe for a structure."""
    general = ALGORITHMS[type(st.STRUCTURES[name](2)), kind]
    return SPARSE.get(name, general) if kind == "natural" else general


def quadratic(theta, P, m):
    return -0.5 * (theta - m) @ P @ (theta - m)


def quadratic_group(effects, shared, data):
    """A group's part of -(theta - m)' P (theta - m) / 2 for P on the arrow, with a share of the shared block."""
    x, y = effects - data["mean"], shared - data["shared mean"]
    return -0.5 * (x @ data["local"] @ x + 2 * y @ data["cross"] @ x + y @ data["shared"] @ y)


@cache
def gaussian_target(name: str, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a Gaussian target that the structure can represent, with its moments."""
    truth = st.random_gaussian(name, 2, seed)
    Sigma, mean = st.covariance(truth), st.flat(truth.mean)
    if not isinstance(truth.mean, ArrowVector):
        return FunctionTarget(quadratic, (jnp.asarray(np.linalg.inv(Sigma)), jnp.asarray(mean))), mean, Sigma
    S = truth.precision()
    local, shared, n = S.local, S.shared, S.local.shape[2]
    cross = getattr(S, "cross", jnp.zeros((len(shared), *local.shape[1:])))
    data = {
        "local": jnp.moveaxis(local, 2, 0),
        "cross": jnp.moveaxis(cross, 2, 0),
        "shared": jnp.repeat(shared[None] / n, n, axis=0),
        "mean": truth.mean.local.T,
        "shared mean": jnp.repeat(truth.mean.shared[None], n, axis=0),
    }
    return GroupTarget(quadratic_group, data), mean, Sigma


def runs(algorithm, start, targets, steps: int = STEPS) -> Iterator[Any]:
    """Yield the Gaussian that the algorithm finds for each target, by the same compiled code."""

    @quick_jit
    def run(target, state, keys):
        return jax.lax.scan(lambda s, key: (algorithm.move(target, s, key), None), state, keys)[0]

    for seed, target in enumerate(targets):
        yield run(target, algorithm.init(start), jax.random.split(jax.random.key(seed), steps)).gaussian


@pytest.mark.parametrize(("name", "rule", "order"), CASES)
def test_random_gaussians_are_recovered(name, rule, order):
    with float64():
        make, kind = RULES[rule]
        targets, means, Sigmas = zip(*(gaussian_target(name, seed) for seed in SEEDS), strict=True)
        algorithm = recipe(name, kind)(targets[0], make(), order=order)
        for found, mean, Sigma in zip(runs(algorithm, st.STRUCTURES[name](2), targets), means, Sigmas, strict=True):
            few = len(mean) == 2  # blocks and the arrow have six coordinates
            tolerance = (0.02 if few else 0.03) if rule == "snngm" else (1e-3 if few else 2e-3)  # steps of fixed length
            np.testing.assert_allclose(st.flat(found.mean), mean, atol=tolerance)
            np.testing.assert_allclose(st.covariance(found), Sigma, atol=2 * tolerance)


@pytest.mark.parametrize("name", STRUCTURES)
def test_pga_reaches_its_noise_floor(name):
    """On N(m, P^-1), mu_i wanders about m_i with variance alpha / (2 sqrt(P_ii)) for ever."""
    with float64():
        alpha = 0.004
        targets, means, Sigmas = zip(*(gaussian_target(name, seed) for seed in SEEDS), strict=True)
        start = st.STRUCTURES[name](2)
        algorithm = compose(targets[0], optimize.pga(alpha), type(start))
        for found, mean, Sigma in zip(runs(algorithm, start, targets, 4000), means, Sigmas, strict=True):
            floor = np.sqrt(alpha / 2 * np.diag(np.linalg.inv(Sigma)) ** -0.5)
            assert np.abs((st.flat(found.mean) - mean) / floor).max() < 4.0
            assert np.abs(np.sqrt(np.diag(st.covariance(found)) / np.diag(Sigma)) - 1).max() < 0.25


def normal_rows(theta, rows):
    return -0.5 * (rows["y"] - rows["X"] @ theta) ** 2


def rows_target(name: str, seed: int) -> tuple[Any, np.ndarray]:
    """Return a Gaussian target with examples for VOGN, rows or groups, and its mean."""
    if isinstance(st.STRUCTURES[name](2).mean, ArrowVector):
        target, mean, _ = gaussian_target(name, seed)
        return target, mean
    rng = np.random.default_rng(seed)
    d = len(st.STRUCTURES[name](2).mean)
    X = rng.normal(size=(20, d))
    y = X @ rng.normal(size=d) + rng.normal(size=20)
    target = FunctionRows(normal_rows, {"X": jnp.asarray(X), "y": jnp.asarray(y)}, IndependentNormal.around_zero(d), 20)
    return target, np.linalg.solve(X.T @ X + np.eye(d) / 100, X.T @ y)


@pytest.mark.parametrize("name", st.STRUCTURES)
def test_vogn_finds_the_mean(name):
    """With the Gauss-Newton curvature of its own gradients, which does not promise the covariance."""
    with float64():
        targets, means = zip(*(rows_target(name, seed) for seed in SEEDS), strict=True)
        start = st.STRUCTURES[name](2)
        algorithm = compose(targets[0], optimize.vogn(falling(0.2)), type(start), num_samples=2, antithetic=True)
        for found, mean in zip(runs(algorithm, start, targets), means, strict=True):
            np.testing.assert_allclose(st.flat(found.mean), mean, atol=0.01)


def test_mistakes_are_explained():
    target = FunctionTarget(lambda theta: -0.5 * theta @ theta)
    for bad in (0.0, -1.0, float("nan")):
        for make in (optimize.adam, optimize.nadam, optimize.snngm, optimize.nagm, optimize.pga, optimize.vogn):
            with pytest.raises(ValueError, match="step size must be positive"):
                make(bad)
    with pytest.raises(ValueError, match="order must be 1"):
        recipes.algorithm_1n(target, order=3)
    with pytest.raises(ValueError, match="updates a PrecisionGaussian; got a CovarianceGaussian"):
        recipes.algorithm_2n(target).init(st.STRUCTURES["dense covariance"](2))
    with pytest.raises(ValueError, match="with a factor in small blocks"):
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
