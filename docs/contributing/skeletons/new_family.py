"""The skeleton of a new family: exponential waiting times with the log link.

y ~ Exponential with mean e^eta has log p = -eta - y e^-eta, and under eta ~ N(m, v) E e^-eta = exp(-m + v/2): closed.
Copy the functions to a file of src/natvi/families/, and add the row to the table in src/natvi/families/table.py.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from natvi.families.family import Family, no_normaliser
from natvi.families.rows import PredictorMoments, RowExpectation


def _kernel(y: Array, eta: Array, disp: Array | None) -> Array:
    return -eta - y * jnp.exp(-eta)


def _expected(y: Array, x: PredictorMoments) -> RowExpectation:
    # E e^-eta = e^{-m + v/2}
    left = y * jnp.exp(-x.mean + 0.5 * x.variance)
    return RowExpectation(-x.mean - left, left - 1.0, -left)


def _variance(mean: Array, disp: Array | None) -> Array:
    return mean**2


def _start(y: Array) -> Array:
    return jnp.log(y + 1e-3)  # finite for a waiting time of zero


def _draw(key: Array, eta: Array, disp: Array | None) -> Array:
    return jnp.exp(eta) * jax.random.exponential(key, eta.shape, eta.dtype)


EXPONENTIAL = Family(
    name="exponential",
    link="log",
    extras=(),
    log_kernel=_kernel,
    log_normaliser=no_normaliser,
    expected=_expected,
    mean=jnp.exp,
    variance=_variance,
    start=_start,
    draw=_draw,
)
