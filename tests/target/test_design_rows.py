"""The target of a generalized linear model: value, gradients, Hessians and expectations against plain definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structures as st
from natvi.derivatives import exact_derivatives
from natvi.derivatives.hessians import hessian_on_pattern
from natvi.families.table import FAMILIES
from natvi.paper.loglinear import Loglinear
from natvi.target import design_rows
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.target.rows import FunctionRows
from natvi.x64 import float64
from strategies import quick_jit

RESPONSES = {
    "poisson": lambda rng, n: rng.poisson(2.0, n).astype(float),
    "bernoulli": lambda rng, n: (rng.random(n) < 0.4).astype(float),
    "gaussian": lambda rng, n: rng.normal(size=n),
    "gamma": lambda rng, n: rng.gamma(2.0, size=n),
    "negative_binomial": lambda rng, n: rng.poisson(3.0, n).astype(float),
}


def build(family, n=12, p=3, weighted=True, seed=0):
    rng = np.random.default_rng(seed)
    X = 0.5 * rng.normal(size=(n, p))
    weight = jnp.asarray(rng.uniform(0.5, 2.0, n)) if weighted else None
    offset = jnp.asarray(0.1 * rng.normal(size=n)) if weighted else None
    d = p + int(FAMILIES[family].has_dispersion)
    prior = IndependentNormal(jnp.asarray(rng.normal(size=d)), jnp.asarray(rng.uniform(1, 3, d)))
    rows = Observations(jnp.asarray(X), jnp.asarray(RESPONSES[family](rng, n)), offset, weight)
    return DesignRows(rows, prior, FAMILIES[family], n, 0.7), d


@quick_jit
def at_a_point(target, theta):
    """Value, gradient, Hessian, gradients of the rows."""
    return (
        target.value(theta),
        jax.grad(target.value)(theta),
        jax.hessian(target.value)(theta),
        target.row_gradients(theta),
    )


quick_value = quick_jit(lambda target, theta: target.value(theta))
quick_values = quick_jit(lambda target, q, z: jax.vmap(target.value)(jax.vmap(q.push)(z)))
quick_expected = quick_jit(lambda target, q: target.expected(q))


@pytest.mark.parametrize("family", RESPONSES)
def test_at_a_point(family):
    with float64():
        target, d = build(family)
        theta = jnp.asarray(0.3 * np.random.default_rng(1).normal(size=d))
        rows, log_density = target.rows, target.family.log_density
        disp = theta[-1] if target.family.has_dispersion else None
        each = log_density(rows.y, rows.X @ theta[:3] + rows.offset, disp)
        value = jnp.sum(rows.weight * each) + target.prior.value(theta) + 0.7
        got, grad, hess, gradients = at_a_point(target, theta)
        np.testing.assert_allclose(got, value, rtol=1e-12)
        for name in ("dense covariance", "diagonal"):
            factor = st.STRUCTURES[name](d).factor
            expected = hess if name.startswith("dense") else np.diag(hess)
            np.testing.assert_allclose(
                quick_jit(hessian_on_pattern)(target, theta, factor), expected, rtol=1e-6, atol=1e-7
            )
        total = jnp.sum(gradients, axis=0) + target.prior.gradient(theta)
        np.testing.assert_allclose(total, grad, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", ["dense covariance", "dense precision", "diagonal"])
@pytest.mark.parametrize("family", RESPONSES)
def test_expectations(family, name):
    """E log p by a dense Gauss-Hermite grid; E grad and E hess by differences of the exact bound (Bonnet, Price)."""
    with float64():
        target, d = build(family, n=4, p=2)
        q = st.random_gaussian(name, d, 3)
        factor = jax.tree.map(
            lambda a: 0.3 * a if name.endswith("covariance") or name == "diagonal" else 3.0 * a, q.factor
        )
        q = type(q)(0.3 * q.mean, factor)
        nodes, weights = np.polynomial.hermite_e.hermegauss(30)
        grid = np.stack(np.meshgrid(*[nodes] * d, indexing="ij")).reshape(d, -1).T
        weight = np.prod(np.stack(np.meshgrid(*[weights] * d, indexing="ij")).reshape(d, -1), axis=0)
        values = quick_values(target, q, jnp.asarray(grid))
        brute = float(weight @ np.asarray(values) / weight.sum())
        got = quick_expected(target, q)
        np.testing.assert_allclose(got.value, brute, rtol=1e-6)
        moved = [quick_expected(target, type(q)(q.mean + step * np.eye(d)[0], q.factor)) for step in (1e-4, -1e-4)]
        np.testing.assert_allclose((moved[0].value - moved[1].value) / 2e-4, got.grad[0], rtol=1e-5, atol=1e-6)
        slope = (moved[0].grad - moved[1].grad) / 2e-4
        row = got.hess[0] if name != "diagonal" else got.hess[0] * np.eye(d)[0]
        np.testing.assert_allclose(slope[0], row[0], rtol=1e-5, atol=1e-6)


def test_poisson_rows_are_the_loglinear_model():
    with float64():
        target, _ = build("poisson", n=30, weighted=False)
        model = Loglinear(target.rows.X, target.rows.y)
        target = DesignRows(target.rows, IndependentNormal.around_zero(3), FAMILIES["poisson"], 30)
        for name in ("dense covariance", "dense precision", "diagonal"):
            q = st.random_gaussian(name, 3, 5)
            q = type(q)(0.2 * q.mean, q.factor)
            np.testing.assert_allclose(
                *quick_jit(lambda q, t=target, m=model: (exact_derivatives(t, q).value, m.bound(q).elbo))(q), rtol=1e-12
            )


def test_minibatches_are_unbiased():
    """Over the batches of an epoch, scaled log-densities and expectations average to the whole."""
    with float64():
        target, d = build("bernoulli", n=12)
        function = FunctionRows(
            lambda theta, rows: (
                rows.weight * FAMILIES["bernoulli"].log_density(rows.y, rows.X @ theta + rows.offset, None)
            ),
            target.rows,
            target.prior,
            12,
        )
        theta, q = jnp.asarray([0.2, -0.4, 0.1]), st.random_gaussian("dense covariance", d, 1)
        batches = [jax.tree.map(lambda a, k=k: a[k : k + 3], target.rows) for k in range(0, 12, 3)]
        for rows_target in (target, function):
            parts = [rows_target.with_rows(rows) for rows in batches]
            np.testing.assert_allclose(
                np.mean([quick_value(part, theta) for part in parts]), quick_value(rows_target, theta), rtol=1e-12
            )
        np.testing.assert_allclose(quick_value(function, theta) + 0.7, quick_value(target, theta), rtol=1e-12)
        np.testing.assert_allclose(function.row_gradients(theta), target.row_gradients(theta), rtol=1e-8)
        parts = [quick_expected(target.with_rows(rows), q) for rows in batches]
        whole = quick_expected(target, q)
        np.testing.assert_allclose(np.mean([part.value for part in parts]), whole.value, rtol=1e-8)
        np.testing.assert_allclose(np.mean([part.hess for part in parts], axis=0), whole.hess, rtol=1e-7)


@pytest.mark.parametrize(("family", "n"), [("bernoulli", 23), ("gamma", 23), ("bernoulli", 24)])
def test_blocks_of_rows_add_up(family, n, monkeypatch):
    with float64():
        target, d = build(family, n=n)
        for name in ("dense covariance", "diagonal"):
            q = st.random_gaussian(name, d, 2)
            whole = quick_expected(target, q)
            with monkeypatch.context() as patch:
                patch.setattr(design_rows, "BLOCK_ROWS", 4)
                blocks = quick_jit(lambda target, q: target.expected(q))(target, q)  # compiled with these blocks
            for a, b in zip(whole, blocks, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)  # quadrature follows the largest sd of a block
