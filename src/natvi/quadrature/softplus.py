"""One-dimensional Gaussian expectations of softplus, accurate for any mean and variance.

The trapezoidal rule on E f(m + s z) converges geometrically for f analytic in a strip. Softplus has its
singularities at +-i pi, a distance a = pi/s in z, so the error is about exp(-2 pi a/h + a^2/2) or, for small s,
exp(-2 pi^2/h^2): the step h below keeps it near 1e-10, with 16 nodes for s <= 0.8 and about 15 s beyond. Positive
means are reflected, softplus(x) = x + softplus(-x), and the nodes are centred at the peak of e^{eta} phi(z), clipped
where softplus leaves its exponential branch: small values, slopes and curvatures in the left tail, and small curvatures
in the right one, keep their relative accuracy. Beyond s = 64 softplus is a kink with a small bump, and an expansion in
1/s takes over, so that the number of nodes is bounded.

The widest row decides the number of nodes for all. Where a few rows are much wider than the others, they are taken out
and have nodes of their own, and the widest of these once more.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, Bool, Float, Int

from natvi.over_hosts import largest
from natvi.quadrature.mills import mills_ratio
from natvi.quadrature.trapezoid import trapezoid

LOG_ACCURACY = 22.0
LARGEST_STEP = 0.95
# one row in eight may have an sd above the first limit and is then treated apart; of those one in four, once more
LIMITS, SHARES, LEAST_ROWS = (1.0, 2.0), (8, 4), 512
WORTH_IT = 1.6  # how far beyond the limit the widest row has to be
WIDEST = 64.0  # sds beyond this use the expansion; the difference of two predictors of sd 30 is still within

LOG_2 = 0.6931471805599453

Rows = Float[Array, "*rows"]

# atanh(u)/u as a polynomial in u^2 on [0, 1/9], from Chebyshev nodes; relative error 7e-14
ATANH_SERIES = (
    0.9999999999999368,
    0.3333333334059967,
    0.19999998632121246,
    0.14285812013750593,
    0.11107700090055997,
    0.0915502181938133,
    0.07035379662321815,
    0.10034077847425321,
)


def log1p_unit(x: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    """Return log(1 + x) for x in [0, 1], several times faster than the general function.

    log(1 + x) = 2 atanh(u) with u = x / (2 + x) <= 1/3.
    """
    u = x / (2.0 + x)
    w = u * u
    series = jnp.full_like(w, ATANH_SERIES[-1])
    for coefficient in reversed(ATANH_SERIES[:-1]):
        series = series * w + coefficient
    return 2.0 * u * series


@jax.custom_jvp
def softplus(t: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    """Return log(1 + e^t); its derivatives are those of the logistic function, at a seventh of the library's cost."""
    return jnp.maximum(t, 0.0) + log1p_unit(jnp.exp(-jnp.abs(t)))


@softplus.defjvp
def _softplus_slope(primals: tuple[Rows], tangents: tuple[Rows]) -> tuple[Rows, Rows]:
    (t,), (move,) = primals, tangents
    return softplus(t), jax.nn.sigmoid(t) * move


def log_positive(x: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    """Return log x for positive numbers that are not tiny, several times faster than the general function.

    x = 2^e (1 + f), so that log x = e log 2 + log(1 + f); the parts are read from the bits of x. No derivative.
    """
    power, fraction = split_number(x)
    return power * LOG_2 + log1p_unit(fraction)


def split_number(x: Float[Array, "*rows"]) -> tuple[Float[Array, "*rows"], Float[Array, "*rows"]]:
    """Return e and f of x = 2^e (1 + f), 0 <= f < 1, for positive numbers that are not tiny."""
    kind, places, bias = (jnp.int64, 52, 1023) if x.dtype == jnp.float64 else (jnp.int32, 23, 127)
    bits = jax.lax.bitcast_convert_type(x, kind)
    power = (bits >> places) - bias
    fraction = jax.lax.bitcast_convert_type((bits & ((1 << places) - 1)) | (bias << places), x.dtype) - 1.0
    return power.astype(x.dtype), fraction


def expected_softplus(m: Rows, v: Rows, log_scale: Rows | None = None) -> tuple[Rows, Rows, Rows]:
    """Return E softplus(x), E sigmoid(x), E sigmoid'(x) for x ~ N(m, v), times e^{log_scale} if that is given.

    Example:
        >>> import jax.numpy as jnp
        >>> value, slope, curvature = expected_softplus(jnp.zeros(1), jnp.zeros(1))
        >>> round(float(value[0]), 4), round(float(slope[0]), 4), round(float(curvature[0]), 4)
        (0.6931, 0.5, 0.25)
    """
    wide = ~(v < WIDEST**2)  # also NaN and infinity
    s = jnp.sqrt(jnp.where(wide, 0.0, v))  # these must not decide the number of nodes
    flat = m.ndim == 1 and m.size >= LEAST_ROWS  # rows of groups, of two axes, gain nothing
    near = _in_parts(m, s, log_scale) if flat else _near_softplus(m, s, log_scale)

    def with_wide() -> tuple[Rows, Rows, Rows]:
        value, slope, curvature = _wide_softplus(m, jnp.sqrt(v), log_scale)
        return jnp.where(wide, value, near[0]), jnp.where(wide, slope, near[1]), jnp.where(wide, curvature, near[2])

    return jax.lax.cond(jnp.any(wide), with_wide, lambda: near)


def _in_parts(m: Rows, s: Rows, log_scale: Rows | None, depth: int = 0) -> tuple[Rows, Rows, Rows]:
    """Return the three expectations, by more nodes for the rows of large s if these are few, else for all."""
    if depth == len(LIMITS):
        return _near_softplus(m, s, log_scale)
    large = s > LIMITS[depth]
    room = m.size // SHARES[depth]
    apart = (jnp.max(s) > WORTH_IT * LIMITS[depth]) & (jnp.sum(large) <= room)
    most = _near_softplus(m, jnp.where(apart & large, LIMITS[depth], s), log_scale)

    def with_few() -> tuple[Rows, Rows, Rows]:
        at = _places(large, room)
        few = _in_parts(m[at], s[at], None if log_scale is None else log_scale[at], depth + 1)
        value, slope, curvature = (a.at[at].set(b) for a, b in zip(most, few, strict=True))
        return value, slope, curvature

    return jax.lax.cond(apart, with_few, lambda: most)


def _places(chosen: Bool[Array, " n"], room: int) -> Int[Array, " room"]:
    """Return where the chosen rows are, and then n, which is read as the last row and written nowhere.

    `jnp.nonzero` says the same, with a sum over all rows that takes seven times as long to compile.
    """

    def look(row: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        at, count = found
        return at.at[count].set(jnp.where(chosen[row], row, n)), count + chosen[row]

    n = chosen.shape[0]
    at = jnp.full(room + 1, n, jnp.int32)
    return jax.lax.fori_loop(0, n, look, (at, jnp.zeros((), jnp.int32)))[0][:room]


def _near_softplus(m: Rows, s: Rows, log_scale: Rows | None) -> tuple[Rows, Rows, Rows]:
    """Return the three expectations by the trapezoidal rule, with a step that suits the largest s."""
    strip = jnp.pi / jnp.maximum(largest(s), 0.5)
    h = jnp.minimum(LARGEST_STEP, 2 * jnp.pi * strip / (LOG_ACCURACY + 0.5 * strip**2))
    # the left tail behaves like e^{eta}: its mass sits at z = s while m + s^2 < 0, at z = -m/s beyond
    left = jnp.abs(m)
    centre = jnp.minimum(left / jnp.maximum(s, 1e-30), s)
    value, slope, curvature = trapezoid(_softplus, -left, s, centre, h, log_scale)
    # softplus(x) = x + softplus(-x), sigmoid(x) = 1 - sigmoid(-x), and sigmoid' is even
    scale = 1.0 if log_scale is None else jnp.exp(log_scale)
    return jnp.where(m > 0, value + scale * m, value), jnp.where(m > 0, scale - slope, slope), curvature


def _softplus(x: Rows) -> tuple[Rows, Rows, Rows]:
    decay = jnp.exp(-jnp.abs(x))
    share = 1.0 / (1.0 + decay)
    value = jnp.maximum(x, 0.0) + log1p_unit(decay)
    return value, jnp.where(x > 0, share, decay * share), decay * share**2


def _wide_softplus(m: Rows, s: Rows, log_scale: Rows | None) -> tuple[Rows, Rows, Rows]:
    """Return the three expectations for large s: softplus is max(x, 0) plus a bump of moments pi^2/6, 7 pi^4/180."""
    a = m / s
    bump, second = jnp.pi**2 / 6, 7 * jnp.pi**4 / 360
    # E max(x, 0) = m Phi(a) + s phi(a)
    if log_scale is None:
        bell, below = jnp.exp(-0.5 * a**2) / jnp.sqrt(2 * jnp.pi), ndtr(a)
        line, peak = m * below, s
    else:
        # for a < 0 it is s phi(a) (1 - |a| R(|a|)), R Mills' ratio: no infinity is taken from another
        bell, below = jnp.exp(log_scale - 0.5 * a**2) / jnp.sqrt(2 * jnp.pi), jnp.exp(log_scale + log_ndtr(a))
        left = jnp.maximum(-a, 0.0)
        line, peak = jnp.where(a > 0, m * below, 0.0), s * (1.0 - left * mills_ratio(left))
    value = line + bell * (peak + bump / s + second * (a**2 - 1) / s**3)
    slope = below - bump * a * bell / s**2
    return value, slope, bell / s * (1 + bump * (a**2 - 1) / s**2)
