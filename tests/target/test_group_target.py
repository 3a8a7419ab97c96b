"""Hierarchical targets by functions: as exact as the library's own mixed models, and fit for second order and VOGN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structures as st
from natvi import optimize, recipes
from natvi.derivatives.hessians import hessian_on_pattern
from natvi.derivatives.per_example import curvature_at
from natvi.gaussian import arrow_precision, dense_precision, local_global_covariance
from natvi.linalg import ArrowVector
from natvi.target import GroupTarget
from natvi.target.function import FunctionTarget
from natvi.x64 import float64
from strategies import MixedCase, arrow_vector, dense_matrix, dense_vector, mixed_case, quick_jit, random_vector

SIZES = (4, 4, 2, 4, 5, 4)


# --- a Poisson model with random intercepts, in the library's terms and in functions ------------------------


def poisson_group(effect, shared, rows):
    """log p(y_i | theta_i, beta) + log p(theta_i | omega) with theta_i ~ N(0, exp(-2 omega))."""
    eta = rows["offset"] + rows["X"] @ shared[:-1] + effect[0]
    each = rows["y"] * eta - jnp.exp(eta) - jax.scipy.special.gammaln(rows["y"] + 1)
    prior = shared[-1] - 0.5 * jnp.log(2 * jnp.pi) - 0.5 * (jnp.exp(shared[-1]) * effect[0]) ** 2
    return jnp.sum(jnp.where(rows["filled"], each, 0.0)) + prior


def poisson_shared(shared):
    """The priors of `mixed_case`."""
    g = len(shared)
    mean, sd = jnp.linspace(-0.2, 0.3, g), jnp.linspace(1.0, 2.0, g)
    return jnp.sum(jax.scipy.stats.norm.logpdf(shared, mean, sd))


def in_functions(case: MixedCase) -> GroupTarget:
    """Pad the groups to the longest, in the order in which the library keeps them."""
    longest = np.bincount(case.data.group).max()
    blank = {"X": case.data.X, "offset": case.data.offset, "y": case.y, "filled": np.ones(len(case.y), bool)}
    padded = {name: np.zeros((case.n, longest, *a.shape[1:]), a.dtype) for name, a in blank.items()}
    for group in range(case.n):
        mine = case.data.group == group
        for name, values in blank.items():
            padded[name][case.layout.place_of_group[group], : mine.sum()] = values[mine]
    return GroupTarget(poisson_group, jax.tree.map(jnp.asarray, padded), poisson_shared)


@pytest.mark.parametrize("seed", [0, 1])
def test_poisson_intercepts_as_in_the_library(seed):
    with float64():
        case = mixed_case("poisson", SIZES, 1, seed, p=3)
        mine, theta = in_functions(case), random_vector(1, case.g, case.n, seed + 5)

        @quick_jit
        def everything(target, theta):
            return *jax.value_and_grad(target.value)(theta), target.hessian(theta), target.group_gradients(theta)

        got, expected = everything(mine, theta), everything(case.target, theta)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
        flat = quick_jit(jax.hessian(lambda x: mine.value(ArrowVector(x[: case.n][None], x[case.n :]))))
        np.testing.assert_allclose(dense_matrix(got[2]), flat(dense_vector(theta)), rtol=1e-10, atol=1e-10)


# --- a random Gaussian ---------------------------------------------------------------------------------------


def gaussian_group(effects, shared, data):
    x = jnp.concatenate([effects, shared]) - data["mean"]
    return -0.5 * jnp.sum((data["root"].T @ x) ** 2)


def gaussian_shared(shared):
    return -0.5 * jnp.sum((shared - 1.0) ** 2)


def random_gaussian_target(r: int, g: int, n: int, seed: int) -> tuple[GroupTarget, np.ndarray, np.ndarray]:
    """Return a sum over groups of quadratic functions of (theta_i, theta_g), its mean and its covariance."""
    rng = np.random.default_rng(seed)
    root = np.eye(r + g) + 0.3 * rng.standard_normal((n, r + g, r + g))
    mean = 0.5 * rng.standard_normal((n, r + g))
    precision, weighted = np.zeros((r * n + g, r * n + g)), np.zeros(r * n + g)
    for i in range(n):
        own = np.r_[r * i : r * i + r, r * n : r * n + g]
        precision[np.ix_(own, own)] += root[i] @ root[i].T
        weighted[own] += root[i] @ root[i].T @ mean[i]
    precision[r * n :, r * n :] += np.eye(g)
    weighted[r * n :] += 1.0
    covariance = np.linalg.inv(precision)
    data = {"root": jnp.asarray(root), "mean": jnp.asarray(mean)}
    return GroupTarget(gaussian_group, data, gaussian_shared), covariance @ weighted, covariance


def falling(count):
    return 0.1 / (1.0 + count / 100.0)


@pytest.mark.parametrize(
    ("rule", "order"),
    [(optimize.plain(falling, natural=True), 1), (optimize.plain(falling, natural=True), 2), (optimize.vogn(0.05), 1)],
    ids=["first order", "second order", "vogn"],
)
def test_the_recipes_find_a_random_gaussian(rule, order):
    with float64():
        r, g, n = 2, 2, 4
        start = arrow_precision(ArrowVector(jnp.zeros((r, n)), jnp.zeros(g)))
        target, *_ = random_gaussian_target(r, g, n, 0)
        algorithm = recipes.algorithm_2s(target, rule, order=order, num_samples=2, antithetic=True)
        traced = []

        @quick_jit
        def run(target, keys):
            traced.append(1)
            step = lambda state, key: (algorithm.move(target, state, key), None)  # noqa: E731
            return jax.lax.scan(step, algorithm.init(start), keys)[0].gaussian

        for seed in (0, 1):
            target, mean, covariance = random_gaussian_target(r, g, n, seed)
            found = run(target, jax.random.split(jax.random.key(seed), 1500))
            np.testing.assert_allclose(dense_vector(found.mean), mean, atol=1e-3)
            if not rule.curvature:  # VOGN promises the mean only
                np.testing.assert_allclose(st.covariance(found), covariance, atol=2e-3)
        assert len(traced) == 1  # the same functions with other data are the same compiled code


def test_local_blocks():
    """With independent blocks the Hessian comes without its cross parts, and so does VOGN's curvature."""
    with float64():
        target, _, covariance = random_gaussian_target(2, 3, 4, 2)
        theta = arrow_vector(np.linspace(-1, 1, 11), 2, 4)
        q = local_global_covariance(theta)
        got = quick_jit(hessian_on_pattern)(target, theta, q.factor)
        precision = np.linalg.inv(covariance)
        np.testing.assert_allclose(got.shared, -precision[8:, 8:], rtol=1e-10)
        np.testing.assert_allclose(got.local[..., 1], -precision[2:4, 2:4], rtol=1e-10)
        z = random_vector(2, 3, 4, 0)
        blocks = quick_jit(lambda target, q, z: q.factor.gram(target.group_gradients(q.push(z))))(target, q, z)
        for a, b in zip(quick_jit(curvature_at)(target, q, z).curvature, blocks, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_without_data_and_without_a_shared_density():
    target = GroupTarget(lambda effects, shared, _: -0.5 * jnp.sum((effects - shared) ** 2), None)
    theta = ArrowVector(jnp.ones((1, 3)), jnp.zeros(1))
    assert float(target.value(theta)) == -1.5
    np.testing.assert_array_equal(target.hessian(theta).shared, [[-3.0]])
    np.testing.assert_array_equal(target.group_gradients(theta).shared, np.ones((1, 3)))


def test_mistakes_are_explained():
    theta = ArrowVector(jnp.zeros((1, 3)), jnp.zeros(2))
    group = lambda effects, shared, y: -0.5 * jnp.sum((y - effects) ** 2)  # noqa: E731
    for data in ({"y": np.zeros(3), "x": np.zeros((4, 2))}, {"y": np.zeros(3), "sd": 1.0}):
        with pytest.raises(ValueError, match="needs the groups as its leading axis"):
            GroupTarget(group, data)
    target = GroupTarget(group, np.zeros(4))
    for call in (target.value, target.hessian, target.group_gradients):
        with pytest.raises(ValueError, match=r"have 4 groups .* theta.local has shape \(1, 3\)"):
            call(theta)
    with pytest.raises(ValueError, match="takes theta as an ArrowVector"):
        step = recipes.algorithm_2n(target)
        step.step(step.init(dense_precision(jnp.zeros(5))), jax.random.key(0))
    with pytest.raises(ValueError, match="one number for each group"):
        GroupTarget(lambda effects, shared, y: y - effects, np.zeros(3)).value(theta)
    with pytest.raises(ValueError, match="shared_log_density must return one number"):
        GroupTarget(group, np.zeros(3), lambda shared: -0.5 * shared**2).value(theta)
    plain = FunctionTarget(lambda theta: -0.5 * jnp.sum(theta.shared**2))
    with pytest.raises(ValueError, match="write it as a GroupTarget"):
        hessian_on_pattern(plain, theta, arrow_precision(theta).factor)
