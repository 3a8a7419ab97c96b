"""log Gamma of a parameter on the log scale, and of its sum with a response: value, first and second derivative.

With x = e^a, Binet's function J is what Stirling's formula leaves over,

    log Gamma(x) = (x - 1/2) a - x + (1/2) log 2 pi + J(x),     J(x) ~ 1/(12 x),

and log Gamma(x + y) - log Gamma(x) = y a + (x + y - 1/2) log(1 + y/x) - y + J(x + y) - J(x) loses no digits, however
large x is.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Rows = Float[Array, "*rows"]
Numbers = Float[Array, "..."]  # a number, or one for each row: shapes that go together
LARGEST_LOG = 600.0  # beyond it both functions are straight lines in a; in single precision overflow comes first

# J as a polynomial w, w^2, ... in w = 1/x on [0, 1], from Chebyshev nodes; relative error 1e-14
BINET_SERIES = (
    0.08333333333333302,
    2.414330309748654e-13,
    -0.002777777810251571,
    1.773160855413532e-09,
    0.0007935988867240747,
    9.377981487958698e-07,
    -0.0006066027850951446,
    9.736979655296306e-05,
    0.00023224991411344327,
    0.0028351917939062345,
    -0.011719425986370881,
    0.024572044593999944,
    -0.03496657062375259,
    0.03657467805120784,
    -0.02876778176093164,
    0.01693664093812307,
    -0.007269010941187541,
    0.002152911822001139,
    -0.0003938913345336913,
    3.3569335937499996e-05,
)


def binet(z: Rows) -> tuple[Rows, Rows, Rows]:
    """Return J(z), z J'(z), z^2 J''(z) for z >= 1."""
    w = 1.0 / z
    # J = sum c_k w^k:  z J' = -sum k c_k w^k,  z^2 J'' = sum k (k + 1) c_k w^k
    value, slope, bend = (jnp.zeros_like(w) for _ in range(3))
    for k in range(len(BINET_SERIES), 0, -1):
        c = BINET_SERIES[k - 1]
        value, slope, bend = (value + c) * w, (slope - k * c) * w, (bend + k * (k + 1) * c) * w
    return value, slope, bend


def stirling_remainder(a: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return J(e^a) and its first two derivatives in a."""
    log_x = _clip(a)
    x = jnp.exp(log_x)
    small = x < 1.0
    value, slope, bend = binet(jnp.where(small, 1.0, x))
    # below 1:  J(x) = J(x + 1) + (x + 1/2) log(1 + 1/x) - 1
    z = x + 1.0
    share = x / z
    up, up_slope, up_bend = binet(z)
    log_ratio = jax.nn.softplus(-log_x)
    first = share * up_slope + x * log_ratio - (x + 0.5) / z
    second = share * up_slope + share**2 * up_bend + x * log_ratio - share - 0.5 * share / z
    return (
        jnp.where(small, up + (x + 0.5) * log_ratio - 1.0 - 0.5 * (a - log_x), value),
        jnp.where(small, first, slope),
        jnp.where(small, second, slope + bend),
    )


def log_gamma_ratio(y: Numbers, a: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return log Gamma(y + e^a) - log Gamma(e^a) and its first two derivatives in a, for whole y >= 0.

    Example:
        >>> import jax.numpy as jnp
        >>> value, _, _ = log_gamma_ratio(jnp.asarray([0.0, 1.0, 4.0]), jnp.zeros(()))  # log of 0!, 1!, 4!
        >>> [round(float(v), 3) for v in value]
        [0.0, 0.0, 3.178]
    """
    log_x = _clip(a)
    x = jnp.exp(log_x)
    below, below_slope, below_bend = stirling_remainder(log_x)
    z = jnp.where(x + y < 1.0, 1.0, x + y)
    share, rest = x / z, y / z
    above, above_slope, above_bend = binet(z)
    log_ratio = jnp.log1p(y / x)
    spread = x * log_ratio
    # the straight lines beyond the clipping: slope y on the right, 1 on the left
    line = (a - log_x) * jnp.where(a > 0, y, 1.0)
    value = y * log_x + spread + (y - 0.5) * log_ratio - y + above - below + line
    first = 0.5 * rest + spread + share * above_slope - below_slope
    second = -0.5 * rest * share + spread - share * y + share * above_slope + share**2 * above_bend - below_bend
    none = y == 0
    return jnp.where(none, 0.0, value), jnp.where(none, 0.0, first), jnp.where(none, 0.0, second)


def _clip(a: Numbers) -> Numbers:
    most = min(LARGEST_LOG, 0.85 * math.log(float(jnp.finfo(a.dtype).max)))
    return jnp.clip(a, -most, most)
