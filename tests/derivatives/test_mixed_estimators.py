"""First- and second-order estimates of a mixed model, on the arrow, against its exact derivatives by z-score."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natvi
from natvi.data import load_epilepsy
from natvi.derivatives.exact import exact_order
from natvi.derivatives.first_order import draw_normals, first_order_at
from natvi.derivatives.second_order import second_order_at
from natvi.gaussian import arrow_precision
from natvi.linalg import ArrowVector
from natvi.models.mixed.target import build_target
from natvi.x64 import float64
from strategies import quick_jit

DRAWS = 20_000


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("formula", ["y ~ trt + (1 | subject)", "y ~ trt + (1 + visit | subject)"])
def test_unbiased(formula, order):
    with float64():
        frame = load_epilepsy()
        model = natvi.glmm(formula, frame[frame["subject"].isin(frame["subject"].unique()[:5])], family="poisson")
        target, *_ = build_target(model.design, model.y, model.family, model.prior)
        r, g = model.design.Z.shape[1], len(model.prior.mean)
        blank = arrow_precision(ArrowVector(jnp.zeros((r, 5)), jnp.zeros(g)), 0.3)
        rng = np.random.default_rng(0)
        factor = blank.factor._replace(cross=jnp.asarray(0.5 * rng.normal(size=blank.factor.cross.shape)))
        mean = jax.tree.map(lambda a: jnp.asarray(0.3 * rng.normal(size=a.shape)), blank.mean)
        q = type(blank)(mean, factor)
        expected = quick_jit(exact_order)(target, q)
        at = first_order_at if order == 1 else second_order_at
        z = draw_normals(jax.random.key(order), q.mean, DRAWS, antithetic=False)
        each = quick_jit(lambda target, q, z: jax.lax.map(lambda z: at(target, q, z), z, batch_size=500))(target, q, z)
        for rows, exact in zip(jax.tree.leaves(each), jax.tree.leaves(expected), strict=True):
            rows = np.asarray(rows).reshape(DRAWS, -1)
            error, noise = rows.mean(0) - np.ravel(exact), rows.std(0) / np.sqrt(DRAWS)
            scores = error / np.maximum(noise, 1e-10)
            assert np.abs(np.where(noise > 1e-9, scores, 0)).max() < 4.0
            assert np.abs(error[noise <= 1e-9]).max(initial=0) < 1e-8
