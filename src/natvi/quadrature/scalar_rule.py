"""Expectations over one scalar Gaussian that many rows share, such as a dispersion parameter on the log scale.

Where every row has its own, the widest decides for all.

Its posterior sd is small as a rule: five Gauss-Hermite nodes then suffice. Wider ones take the trapezoidal rule, with
a step for functions analytic in the strip |Im a| < pi, as those of e^a with singularities at negative numbers are.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

NARROW = 0.2  # up to this sd five nodes err by 1e-10
HERMITE_NODES, HERMITE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
REACH = 7.6
LARGEST_STEP = 0.8
LOG_ACCURACY = 23.0
WIDEST = 64.0  # sds beyond this take no more nodes

Scalar = Float[Array, "..."]


def expected_over_scalar(
    f: Callable[[Scalar], tuple[Array, ...]], m: Scalar, v: Scalar
) -> tuple[Float[Array, "..."], ...]:
    """Return the expectations of several functions of a ~ N(m, v); the functions may return whole arrays.

    Example:
        >>> import jax.numpy as jnp
        >>> (square,) = expected_over_scalar(lambda a: (a**2,), jnp.ones(()), jnp.asarray(0.01))
        >>> round(float(square), 4)
        1.01
    """
    s = jnp.sqrt(v)
    widest = jnp.max(s)
    narrow = widest <= NARROW
    strip = jnp.pi / jnp.where(jnp.isnan(widest), 0.5, jnp.clip(widest, 0.5, WIDEST))
    h = jnp.minimum(LARGEST_STEP, 2 * jnp.pi * strip / (LOG_ACCURACY + 0.5 * strip**2))
    count = jnp.where(narrow, len(HERMITE_NODES), jnp.ceil(2 * REACH / h).astype(jnp.int32) + 1)
    nodes = jnp.asarray(HERMITE_NODES, m.dtype)
    weights = jnp.asarray(HERMITE_WEIGHTS / HERMITE_WEIGHTS.sum(), m.dtype)

    def body(j: Array, totals: tuple[Array, ...]) -> tuple[Array, ...]:
        t = h * (j - 0.5 * (count - 1))
        place = jnp.minimum(j, len(HERMITE_NODES) - 1)
        z = jnp.where(narrow, nodes[place], t)
        weight = jnp.where(narrow, weights[place], h / jnp.sqrt(2 * jnp.pi) * jnp.exp(-0.5 * t**2))
        return tuple(total + weight * part for total, part in zip(totals, f(m + s * z), strict=True))

    zeros = tuple(jnp.zeros(part.shape, part.dtype) for part in jax.eval_shape(f, m))
    return jax.lax.fori_loop(0, count, body, zeros)
