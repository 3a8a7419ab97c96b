"""First- and second-order estimates of the bound's gradient (Theorem 2): unbiased, and Lemma 2 behind them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structures as st
from natvi.derivatives.first_order import draw_normals, first_order, first_order_at
from natvi.derivatives.second_order import factor_gradient, second_order_at
from natvi.gaussian import CovarianceGaussian
from natvi.target.function import FunctionTarget
from natvi.x64 import float64
from strategies import quick_jit

DRAWS = 4000


def loglinear(theta, X, y):
    """Log-density of a loglinear model with a standard normal prior: its bound is closed (supplement S2)."""
    eta = X @ theta
    return jnp.sum(y * eta - jnp.exp(eta)) - 0.5 * theta @ theta


def exact_bound(X, y, mu, Sigma):
    m, v = X @ mu, jnp.einsum("kd,de,ke->k", X, Sigma, X)
    expected = jnp.sum(y * m - jnp.exp(m + v / 2)) - 0.5 * (mu @ mu + jnp.trace(Sigma))
    return expected + 0.5 * jnp.linalg.slogdet(Sigma)[1]


def problem(name):
    rng = np.random.default_rng(1)
    gaussian = st.random_gaussian(name, 2, 3)
    d = len(st.flat(gaussian.mean))
    X = jnp.asarray(0.4 * rng.standard_normal((6, d)))
    y = jnp.asarray(rng.poisson(2.0, 6).astype(float))
    target = FunctionTarget(lambda theta, X, y: loglinear(as_flat(theta), X, y), (X, y))
    return gaussian, target, X, y


def as_flat(theta):
    return jnp.concatenate([theta.local.T.ravel(), theta.shared]) if hasattr(theta, "local") else theta


def exact_gradient(gaussian, X, y):
    """Differentiate the exact bound in the mean and in the free entries of the factor."""
    at = st.pattern(gaussian.factor)
    d = len(st.flat(gaussian.mean))

    def bound(mu, entries):
        F = jnp.zeros((d, d)).at[at].set(entries)
        Sigma = F @ F.T if isinstance(gaussian, CovarianceGaussian) else jnp.linalg.inv(F @ F.T)
        return exact_bound(X, y, mu, Sigma)

    start = jnp.asarray(st.flat(gaussian.mean)), jnp.asarray(st.dense(gaussian.factor)[at])
    mean, entries = quick_jit(jax.grad(bound, argnums=(0, 1)))(*start)
    return np.concatenate([mean, entries]), at


def spread(gaussian, gradients, at):
    """Lay each draw's gradient out as a vector."""
    means = quick_jit(jax.vmap(as_flat))(gradients.mean)
    weights = [st.dense(_single(gradients.factor, leaf, entry))[at] for leaf, entry in _entries(gradients.factor)]
    columns = [np.asarray(leaf).reshape(DRAWS, -1)[:, entry] for leaf, entry in _entries(gradients.factor, leaves=True)]
    return np.concatenate([np.asarray(means), np.stack(columns, 1) @ np.stack(weights)], axis=1)


def _entries(factor, leaves=False):
    """Run over all stored entries of a factor, by leaf and position."""
    flat = jax.tree.leaves(factor)
    for k, leaf in enumerate(flat):
        for entry in range(leaf[0].size):
            yield (leaf if leaves else k), entry


def _single(factor, which, entry):
    """Return a factor with one stored entry equal to one."""
    leaves, structure = jax.tree.flatten(factor)
    ones = [np.zeros(leaf[0].size) for leaf in leaves]
    ones[which][entry] = 1.0
    return jax.tree.unflatten(
        structure, [jnp.asarray(o.reshape(x[0].shape)) for o, x in zip(ones, leaves, strict=True)]
    )


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", [name for name in st.STRUCTURES if "arrow" not in name and "global" not in name])
def test_unbiased(name, order):
    with float64():
        gaussian, target, X, y = problem(name)
        expected, at = exact_gradient(gaussian, X, y)
        z = draw_normals(jax.random.key(0), gaussian.mean, DRAWS, antithetic=False)
        estimate = first_order_at if order == 1 else second_order_at
        gradients = quick_jit(jax.vmap(lambda z: estimate(target, gaussian, z)))(z)
        rows = spread(gaussian, gradients, at)
        error = rows.mean(0) - expected
        noise = rows.std(0) / np.sqrt(DRAWS)
        scores = error / np.maximum(noise, 1e-12)
        assert np.abs(np.where(noise > 1e-9, scores, 0)).max() < 4
        assert np.abs(error[noise <= 1e-9]).max(initial=0) < 1e-8


@pytest.mark.parametrize("name", ["arrow precision", "local-global covariance", "local-global precision"])
def test_unbiased_first_order_of_groups(name):
    with float64():
        gaussian, target, X, y = problem(name)
        expected, at = exact_gradient(gaussian, X, y)
        z = draw_normals(jax.random.key(1), gaussian.mean, DRAWS, antithetic=False)
        gradients = quick_jit(jax.vmap(lambda z: first_order_at(target, gaussian, z)))(z)
        rows = spread(gaussian, gradients, at)
        scores = (rows.mean(0) - expected) / (rows.std(0) / np.sqrt(DRAWS))
        assert np.abs(scores).max() < 4


@pytest.mark.parametrize("name", st.STRUCTURES)
def test_second_order_formula_is_the_gradient_of_a_quadratic(name):
    """For log p = -theta' P theta / 2 the factor gradient from hess = -P is exact, also on the arrow."""
    with float64():
        gaussian = st.random_gaussian(name, 2, 5)
        d = len(st.flat(gaussian.mean))
        draw = np.random.default_rng(6).standard_normal((d, d))
        P = draw @ draw.T / d + np.eye(d)
        at = st.pattern(gaussian.factor)
        keep = np.zeros((d, d))
        keep[at] = 1.0
        P = P * np.maximum(keep, keep.T)  # the Hessian lies on the pattern
        hess = st.symmetric(gaussian.factor, -P)
        found = st.dense(quick_jit(factor_gradient)(gaussian, hess))[at]

        def bound(entries):
            F = jnp.zeros((d, d)).at[at].set(entries)
            Sigma = F @ F.T if isinstance(gaussian, CovarianceGaussian) else jnp.linalg.inv(F @ F.T)
            return -0.5 * jnp.trace(P @ Sigma) + 0.5 * jnp.linalg.slogdet(Sigma)[1]

        expected = quick_jit(jax.grad(bound))(jnp.asarray(st.dense(gaussian.factor)[at]))
        np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-9, atol=1e-10)


def test_lemma_2():
    """E[(Sigma^-1 (theta - mu)(theta - mu)' - I) h] = E[grad h (theta - mu)'], by z-scores."""
    with float64():
        q = st.random_gaussian("dense covariance", 2, 8)
        Sigma, mu = st.covariance(q), st.flat(q.mean)
        theta = np.asarray(quick_jit(jax.vmap(q.sample))(jax.random.split(jax.random.key(2), 40_000)))

        def h(t):
            return jnp.sin(t[0]) * jnp.exp(-0.5 * t[1] ** 2) + t[0] * t[1]

        value, grad = map(np.asarray, quick_jit(jax.vmap(jax.value_and_grad(h)))(jnp.asarray(theta)))
        move = theta - mu
        left = (np.einsum("sd,se->sde", move @ np.linalg.inv(Sigma), move) - np.eye(2)) * value[:, None, None]
        gap = left - np.einsum("sd,se->sde", grad, move)
        scores = gap.mean(0) / (gap.std(0) / np.sqrt(len(gap)))
        assert np.abs(scores).max() < 4


def test_several_draws_and_antithetic_pairs():
    with float64():
        gaussian, target, *_ = problem("dense covariance")
        z = draw_normals(jax.random.key(0), gaussian.mean, 6, antithetic=True)
        np.testing.assert_array_equal(np.asarray(z[:3]), -np.asarray(z[3:]))
        many = first_order(target, gaussian, jax.random.key(0), num_samples=6, antithetic=True)
        each = [quick_jit(first_order_at)(target, gaussian, z[i]) for i in range(6)]
        np.testing.assert_allclose(float(many.elbo), np.mean([float(e.elbo) for e in each]), rtol=1e-12)
        with pytest.raises(ValueError, match="even if antithetic"):
            draw_normals(jax.random.key(0), gaussian.mean, 3, antithetic=True)
