"""Expectations of any function on fixed points: deterministic, so that the same ascent, stop and resume serve them.

With Sigma = R' R and theta = mu + R' z over whitened, antithetic points z (`quadrature.fixed_points`), Stein's identity
gives the curvature from gradients alone, in units of posterior sds:

    E grad = mean of grad,     R E[hess] R' = sym(R E[grad z']).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.target import Expected

BATCH = 64  # points at a time: few enough for the cache, many enough for whole vectors


def whitened_expectation(
    value: Callable[[Float[Array, " d"]], Float[Array, ""]],
    mean: Float[Array, " d"],
    root: Float[Array, "d d"],
    z: Float[Array, "d m"],
) -> Expected:
    """Return E f, R E grad f and R E[hess f] R' under N(mean, R' R), on the points.

    Args:
        value: f at one point.
        mean: Of the Gaussian.
        root: R.
        z: The points.
    """
    points = mean + (root.T @ z).T
    values, gradients = jax.lax.map(jax.value_and_grad(value), points, batch_size=min(BATCH, z.shape[1]))
    whitened = gradients @ root.T
    product = whitened.T @ z.T / z.shape[1]
    return Expected(jnp.mean(values), jnp.mean(whitened, axis=0), 0.5 * (product + product.T))
