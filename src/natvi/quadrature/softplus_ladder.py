"""Gaussian expectations of softplus and its first eight derivatives, and from them those about means close by.

With G_n = E f^(n)(x), x ~ N(m, v), E f(x + e) = sum_n G_n e^n / n!, so that many shifts of one Gaussian cost one pass
over its nodes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.quadrature.softplus import LARGEST_STEP, LOG_ACCURACY, log1p_unit

REACH = 6.8
LARGEST_SHIFT = 0.4  # up to it the second derivative errs by 1e-6 at most
ORDER = 6

Rows = Float[Array, "*rows"]


class Ladder(NamedTuple):
    """G_0 to G_8."""

    steps: tuple[Rows, ...]

    def shifted(self, e: Rows) -> tuple[Rows, Rows, Rows]:
        """Return E softplus, its first and its second derivative, e further on."""
        parts = []
        for order in range(3):
            value = self.steps[order + ORDER]
            for n in range(ORDER, 0, -1):
                value = self.steps[order + n - 1] + value * e / n
            parts.append(value)
        return parts[0], parts[1], parts[2]


def softplus_ladder(m: Rows, s: Rows) -> Ladder:
    """Return the ladder of x ~ N(m, s^2).

    Example:
        >>> found = softplus_ladder(jnp.zeros(1), jnp.ones(1)).shifted(jnp.full(1, 0.3))
        >>> [round(float(part[0]), 5) for part in found]
        [0.96534, 0.56171, 0.20383]
    """
    strip = jnp.pi / jnp.maximum(jnp.max(s), 0.5)
    h = jnp.minimum(LARGEST_STEP, 2 * jnp.pi * strip / (LOG_ACCURACY + 0.5 * strip**2))
    count = jnp.ceil(2 * REACH / h).astype(jnp.int32) + 1

    def at_node(k: Array, total: tuple[Rows, ...]) -> tuple[Rows, ...]:
        t = h * (k - 0.5 * (count - 1))
        weight = h / jnp.sqrt(2 * jnp.pi) * jnp.exp(-0.5 * t**2)
        return tuple(a + weight * b for a, b in zip(total, _derivatives(m + s * t), strict=True))

    return Ladder(jax.lax.fori_loop(0, count, at_node, (jnp.zeros_like(m),) * 9))


def _derivatives(x: Rows) -> tuple[Rows, ...]:
    decay = jnp.exp(-jnp.abs(x))
    share = 1.0 / (1.0 + decay)
    p = jnp.where(x > 0, share, decay * share)
    q = decay * share**2  # p (1 - p), and d its slope over itself
    d = 1.0 - 2.0 * p
    return (
        jnp.maximum(x, 0.0) + log1p_unit(decay),
        p,
        q,
        q * d,
        q * (1.0 - 6.0 * q),
        q * d * (1.0 - 12.0 * q),
        q * (1.0 - 30.0 * q * (1.0 - 4.0 * q)),
        q * d * (1.0 - 60.0 * q * (1.0 - 6.0 * q)),
        q * (1.0 - 126.0 * q * (1.0 - 40.0 / 3.0 * q * (1.0 - 3.0 * q))),
    )
