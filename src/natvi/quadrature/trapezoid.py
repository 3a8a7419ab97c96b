"""The trapezoidal rule for one-dimensional Gaussian expectations of many rows at once.

On E f(x), x = m + s z, it converges geometrically for f analytic in a strip. The rule loops over nodes and holds no
rows x nodes array; each row has a centre of its own, so that a row whose value sits in a tail keeps its relative
accuracy.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

REACH = 6.8  # nodes run from centre - REACH to centre + REACH, in sds
UNROLL = 2

Rows = Float[Array, "*rows"]


def trapezoid(
    f: Callable[[Rows], tuple[Rows, Rows, Rows]],
    m: Rows,
    s: Rows,
    centre: Rows,
    h: Float[Array, ""],
    log_scale: Rows | None = None,
) -> tuple[Rows, Rows, Rows]:
    """Return the expectations of three functions of x ~ N(m, s^2), times e^{log_scale} if that is given.

    Args:
        f: The three functions, of every row's x.
        m: Means.
        s: Standard deviations.
        centre: Where the integrand of each row has its mass, on the standard scale; at most some forty.
        h: The step, which decides the number of nodes.
        log_scale: Exponents that join those of the density before they are taken, so that nothing overflows on the way.

    Returns:
        The three expectations.
    """
    trips = jnp.ceil((2 * REACH / h + 1) / UNROLL).astype(jnp.int32)
    first = -0.5 * h * (trips * UNROLL - 1)
    # phi(centre + t) = phi(centre) e^{-centre t} e^{-t^2/2}: one product per node instead of an exponential
    ratio = jnp.exp(-h * centre)
    log_tilt = -0.5 * centre**2 - centre * first
    if log_scale is not None:  # a weight stays finite: infinity times an underflow would be NaN
        log_tilt = jnp.minimum(log_tilt + log_scale, math.log(float(jnp.finfo(m.dtype).max)) - 1.0)
    tilt = h / jnp.sqrt(2 * jnp.pi) * jnp.exp(log_tilt)
    middle = m + s * centre

    def body(trip: Array, carry: tuple[Rows, Rows, Rows, Rows]) -> tuple[Rows, Rows, Rows, Rows]:
        value, slope, curvature, tilt = carry
        for j in range(UNROLL):
            t = first + h * (trip * UNROLL + j)
            weight = tilt * jnp.exp(-0.5 * t**2)
            at = f(middle + s * t)
            value, slope, curvature = value + weight * at[0], slope + weight * at[1], curvature + weight * at[2]
            tilt = tilt * ratio
        return value, slope, curvature, tilt

    zeros = jnp.zeros_like(middle)
    value, slope, curvature, _ = jax.lax.fori_loop(0, trips, body, (zeros, zeros, zeros, tilt))
    return value, slope, curvature
