"""VOGN from end to end: rows with a Gauss-Newton curvature, exact expectations, and mixed models on the arrow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natvi
import structures as st
from natvi import optimize
from natvi.data import load_epilepsy
from natvi.derivatives.per_example import curvature_at
from natvi.families.table import FAMILIES
from natvi.gaussian import CovarianceGaussian, PrecisionGaussian, arrow_precision, diagonal_covariance
from natvi.linalg import ArrowVector
from natvi.models.mixed.target import build_target
from natvi.run import wander
from natvi.run.algorithm import compose
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.function import FunctionTarget
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.x64 import float64
from strategies import quick_jit


def rows_target(family="poisson", n=400, d=4):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, d - 1))])
    eta = X @ np.linspace(-0.5, 0.5, d)
    y = rng.poisson(np.exp(eta)) if family == "poisson" else rng.random(n) < 1 / (1 + np.exp(-eta))
    rows = Observations(jnp.asarray(X), jnp.asarray(y, float))
    return DesignRows(rows, IndependentNormal.around_zero(d), FAMILIES[family], n)


@pytest.mark.parametrize("name", ["diagonal", "dense covariance", "dense precision", "block covariance"])
def test_curvature_of_rows(name):
    """(n/k) sum g g' + prior precision on the pattern, and the prior's gradient at the mean."""
    with float64():
        q = st.random_gaussian(name, 2, 3)
        d = len(q.mean)
        whole = rows_target(n=24, d=d)
        target = whole.with_rows(jax.tree.map(lambda a: a[:6], whole.rows))
        z = jnp.asarray(np.random.default_rng(1).normal(size=d))
        got = curvature_at(target, q, z)
        theta = q.push(z)
        gradients = np.asarray(target.row_gradients(theta))
        curvature = 4.0 * gradients.T @ gradients + np.eye(d) / 100
        np.testing.assert_allclose(got.mean, 4.0 * gradients.sum(0) - q.mean / 100, rtol=1e-10)
        np.testing.assert_allclose(got.elbo, target.value(theta) - q.log_prob(theta), rtol=1e-10)
        if name == "diagonal":
            np.testing.assert_allclose(got.curvature, np.diag(curvature), rtol=1e-10)
        elif name == "block covariance":
            for stack, index in zip(got.curvature, q.factor.layout.indices, strict=True):
                np.testing.assert_allclose(stack, curvature[index[:, None], index[None]], rtol=1e-10)
        else:
            np.testing.assert_allclose(got.curvature, curvature, rtol=1e-10)


def epilepsy():
    model = natvi.glmm("y ~ base*trt + age + visit + (1 | subject)", load_epilepsy(), family="poisson", prior="paper")
    target, *_ = build_target(model.design, model.y, model.family, model.prior)
    n, g = len(model.design.group_labels), len(model.prior.mean)
    start = arrow_precision(ArrowVector(jnp.zeros((1, n)), jnp.zeros(g)), len(model.y) ** -0.5)
    return model, target, start


def test_gradients_of_groups():
    """Each group's gradient is that of its own rows, its prior and a share of the rest."""
    with float64():
        _, target, start = epilepsy()
        theta = start.push(
            jax.tree.map(lambda a: jnp.asarray(np.random.default_rng(0).normal(size=a.shape)), start.mean)
        )
        got = quick_jit(lambda t, x: t.group_gradients(x))(target, theta)
        whole = quick_jit(lambda t, x: jax.grad(t.value)(x))(target, theta)
        np.testing.assert_allclose(got.local, whole.local, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(jnp.sum(got.shared, axis=1), whole.shared, rtol=1e-9, atol=1e-8)
        # leaving one group's rows and effect out changes the gradient by that group's part
        n = theta.local.shape[1]
        (likelihood, effects), (prior,) = target.grouped, target.shared
        one = type(target)((likelihood.block(7, 1), effects), ())
        own = jax.grad(one.value)(ArrowVector(theta.local[:, 7:8], theta.shared))
        share = jax.grad(prior.value)(theta).shared / n
        np.testing.assert_allclose(got.shared[:, 7], own.shared + share, rtol=1e-9, atol=1e-9)
        dense = jnp.concatenate([jnp.diag(got.local[0]), got.shared]).T  # J, a row per group
        np.testing.assert_allclose(
            start.factor.gram(got).shared, np.asarray(dense.T @ dense)[n:, n:], rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("order", [1, "exact"])
@pytest.mark.parametrize("name", ["diagonal", "dense"])
def test_rows_from_end_to_end(name, order):
    """The mean is found; with exact expectations the covariance too (Gauss-Newton does not promise it)."""
    with float64():
        target = rows_target()
        starts = {"diagonal": diagonal_covariance, "dense": st.dense_covariance}
        algorithm = compose(target, optimize.vogn(0.05), CovarianceGaussian, order=order)
        fitted = wander(algorithm, starts[name](jnp.zeros(4), 0.05), gap=0.01)
        truth = wander(
            compose(target, optimize.plain(0.2, natural=True), CovarianceGaussian, order="exact"),
            starts[name](jnp.zeros(4), 0.05),
            gap=1e-6,
        )
        sds = np.asarray(truth.gaussian.marginal_sds())
        assert fitted.outcome == "converged"
        np.testing.assert_allclose(fitted.gaussian.mean, truth.gaussian.mean, atol=0.15 * sds.min())
        if order == "exact":
            np.testing.assert_allclose(fitted.gaussian.marginal_sds(), sds, rtol=0.02)


def test_mixed_model_from_end_to_end():
    with float64():
        model, target, start = epilepsy()
        fitted = wander(compose(target, optimize.vogn(0.02), PrecisionGaussian), start, max_steps=20_000)
        table = model.fit().fixed_effects()
        off = (np.asarray(fitted.gaussian.mean.shared[: len(table)]) - table["mean"]) / table["sd"]
        assert np.isfinite(fitted.trace).all() and np.abs(off).max() < 1.0


def test_mistakes_are_explained():
    with float64():
        with pytest.raises(ValueError, match="VOGN takes gradients of rows"):
            compose(rows_target(), optimize.vogn(), CovarianceGaussian, order=2)
        target = FunctionTarget(lambda t: -0.5 * t @ t)
        algorithm = compose(target, optimize.vogn(), CovarianceGaussian)
        with pytest.raises(ValueError, match="VOGN needs each row's gradient"):
            algorithm.step(algorithm.init(diagonal_covariance(jnp.zeros(2))), jax.random.key(0))
        with pytest.raises(ValueError, match="order='exact' needs a target that knows its expectations"):
            compose(target, optimize.adam(), CovarianceGaussian, order="exact")
