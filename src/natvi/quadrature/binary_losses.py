"""Gaussian expectations of -log P(failure) for the probit and -log P(success) for the complementary log-log link.

Both losses are positive, convex and analytic in a strip, so that the trapezoidal rule serves them as it serves
softplus. -log Phi(-t) has its nearest singularities at the zeros -1.92 +- 2.82 i of Phi(-t), and grows quadratically
to the right; -log(1 - exp(-e^{-t})) has them at Im t = +- pi/2, and grows linearly. To the left they fall like
e^{-t^2/2} and exp(-e^{-t}): the nodes are centred where the product with the density has its peak, and the step
follows the peak's width, so that small values keep their relative accuracy. Beyond an sd of 64 the step stays a fixed
share of the sd.
"""

from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.over_hosts import largest
from natvi.quadrature.mills import mills_ratio
from natvi.quadrature.softplus import LARGEST_STEP, LOG_2, LOG_ACCURACY, WIDEST, log1p_unit, log_positive, split_number
from natvi.quadrature.trapezoid import trapezoid

FARTHEST = 37.0  # e^{-37^2/2} is the smallest number there is
PROBIT_STRIP, PROBIT_GROWTH = 2.5, 3.2  # how far the contour is moved, and the logarithm of the growth there
CLOGLOG_STRIP, CLOGLOG_GROWTH = 1.3, 3.0
HUGE = 1e150
HALF_LOG_2PI = 0.9189385332046727

# log(sinh(v)/v) = v^2/6 - v^4/180 + v^6/2835 - ..., for v <= 1/2
SINH_SERIES = (1 / 6, -1 / 180, 1 / 2835, -1 / 37800, 1 / 467775, -691 / 3831077250, 2 / 127702575)

Rows = Float[Array, "*rows"]


def expected_probit_loss(m: Rows, v: Rows, share: Rows | None = None) -> tuple[Rows, Rows, Rows]:
    """Return E f(t), E f'(t), E f''(t) for t ~ N(m, v) and f(t) = -(1 - share) log Phi(-t) - share log Phi(t).

    Without a share it is zero everywhere, and the work is half.

    Example:
        >>> import jax.numpy as jnp
        >>> value, slope, curvature = expected_probit_loss(jnp.zeros(1), jnp.zeros(1))
        >>> round(float(value[0]), 4), round(float(slope[0]), 4), round(float(curvature[0]), 4)
        (0.6931, 0.7979, 0.6366)
    """
    s = _sd(v)
    widest = _widest(s)
    # the left tail e^{-t^2/2} phi(z) has its peak at t = m / (1 + s^2) and the width 1 / sqrt(1 + s^2)
    centre = jnp.clip(-m * s / (1.0 + s**2), 0.0, FARTHEST)
    if share is not None:
        centre = jnp.where(share > 0, 0.0, centre)  # then the right tail of the other half decides
    h = jnp.minimum(LARGEST_STEP / jnp.sqrt(1.0 + widest**2), _step(widest, 0.35, PROBIT_STRIP, PROBIT_GROWTH))

    loss = probit_loss_of_one if share is None else partial(probit_loss, share=share)
    return trapezoid(loss, m, s, centre, h)


def probit_loss_of_one(t: Rows) -> tuple[Rows, Rows, Rows]:
    """Return f(t), f'(t), f''(t) for f(t) = -log Phi(-t): `probit_loss` without a share, at half of its cost.

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(part), 4) for part in probit_loss_of_one(jnp.zeros(()))]
        [0.6931, 0.7979, 0.6366]
    """
    right = t > 0
    u = jnp.where(right, t, -t)
    ratio = mills_ratio(u)
    density = jnp.exp(-0.5 * u**2 - HALF_LOG_2PI)
    # h = phi(t)/Phi(-t):  1/R(u) on the right, phi(u)/Phi(u) on the left
    slope = jnp.where(right, 1.0, density) / jnp.where(right, ratio, 1.0 - density * ratio)
    # one logarithm for both sides: of R(u) = 2^e (1 + f), or of 1 + Phi(-u)/Phi(u)
    power, fraction = split_number(ratio)
    log = log1p_unit(jnp.where(right, fraction, ratio * slope))
    value = jnp.where(right, 0.5 * u**2 + HALF_LOG_2PI - power * LOG_2 - log, log)
    far = 1.0 - ratio**2 * (1.0 - 4.0 * ratio**2)
    return value, slope, jnp.where(t > 100.0, far, slope * (slope - t))


def probit_loss(t: Rows, share: Rows) -> tuple[Rows, Rows, Rows]:
    """Return f(t), f'(t), f''(t) for f(t) = -(1 - share) log Phi(-t) - share log Phi(t), with small relative errors.

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(part), 4) for part in probit_loss(jnp.zeros(()), jnp.zeros(()))]
        [0.6931, 0.7979, 0.6366]
    """
    right = t > 0
    u = jnp.where(right, t, -t)
    ratio = mills_ratio(u)
    density = jnp.exp(-0.5 * u**2 - HALF_LOG_2PI)
    upper = 1.0 / (1.0 - density * ratio)  # 1 / Phi(u)
    # at t = -u:  -log Phi(u) = log(1 + Phi(-u)/Phi(u));  at t = u:  -log Phi(-u) = u^2/2 + log sqrt(2 pi) - log R(u)
    small = log1p_unit(density * ratio * upper)
    large = 0.5 * u**2 + HALF_LOG_2PI - log_positive(ratio)
    small_slope, large_slope = density * upper, 1.0 / ratio
    # the second derivative of -log Phi(-t) is h (h - t) with h = phi(t)/Phi(-t)
    # at t = u, far out, 1 - R^2 + 4 R^4 + ...
    far = 1.0 - ratio**2 * (1.0 - 4.0 * ratio**2)
    small_bend = small_slope * (small_slope + u)
    large_bend = jnp.where(u > 100.0, far, large_slope * (large_slope - u))
    own = jnp.where(right, large, small), jnp.where(right, large_slope, small_slope)
    other = jnp.where(right, small, large), jnp.where(right, small_slope, large_slope)
    bends = jnp.where(right, large_bend, small_bend), jnp.where(right, small_bend, large_bend)
    return (
        own[0] + share * (other[0] - own[0]),
        own[1] - share * (other[1] + own[1]),
        bends[0] + share * (bends[1] - bends[0]),
    )


def expected_cloglog_loss(m: Rows, v: Rows) -> tuple[Rows, Rows, Rows]:
    """Return E f(t), E f'(t), E f''(t) for t ~ N(m, v) and f(t) = -log(1 - exp(-e^{-t})).

    Example:
        >>> import jax.numpy as jnp
        >>> value, slope, curvature = expected_cloglog_loss(jnp.zeros(1), jnp.zeros(1))
        >>> round(float(value[0]), 4), round(float(slope[0]), 4), round(float(curvature[0]), 4)
        (0.4587, 0.582, 0.3387)
    """
    s = _sd(v)
    # exp(-e^{-t}) phi(z) has its peak at z = s e^{-t}, t = m + s z, and the width 1 / sqrt(1 + s z);
    # where the peak would lie in the linear branch, not far from where that begins, t = 0
    centre = jnp.minimum(s * jnp.exp(-_peak(m, s)), 1.0 + jnp.maximum(-m / jnp.maximum(s, 1e-30), 0.0))
    centre = jnp.clip(centre, 0.0, FARTHEST)
    narrow = 1.5 * largest(jnp.where(s < WIDEST, s * centre, 0.0))  # half as much again: the peak is skew
    step = _step(_widest(s), 0.18, CLOGLOG_STRIP, CLOGLOG_GROWTH)
    return trapezoid(cloglog_loss, m, s, centre, jnp.minimum(LARGEST_STEP / jnp.sqrt(1.0 + narrow), step))


def cloglog_loss(t: Rows) -> tuple[Rows, Rows, Rows]:
    """Return f(t), f'(t), f''(t) for f(t) = -log(1 - exp(-e^{-t})).

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(part), 4) for part in cloglog_loss(jnp.zeros(()))]
        [0.4587, 0.582, 0.3387]
    """
    w = jnp.minimum(jnp.exp(-t), 800.0)
    # w < 1:  f = t + w/2 - log(sinh(w/2)/(w/2)),  f' = w/(e^w - 1) = 1 - w/2 + c,  f'' = f' (w/2 + c),
    # where c = (w/2) coth(w/2) - 1
    half = 0.5 * jnp.minimum(w, 1.0)
    square = half * half
    log_sinh, c = jnp.zeros_like(square), jnp.zeros_like(square)
    for k in range(len(SINH_SERIES), 0, -1):
        log_sinh = (log_sinh + SINH_SERIES[k - 1]) * square
        c = (c + 2 * k * SINH_SERIES[k - 1]) * square
    slope = 1.0 - half + c
    # w > 1:  f = log(1 + e^{-w}/(1 - e^{-w}))
    decay = jnp.exp(-jnp.maximum(w, 1.0))
    share = 1.0 / (1.0 - decay)
    far_slope = w * decay * share
    small = w < 1.0
    return (
        jnp.where(small, t + half - log_sinh, log1p_unit(decay * share)),
        jnp.where(small, slope, far_slope),
        jnp.where(small, slope * (half + c), far_slope * (w * share - 1.0)),
    )


def _peak(m: Rows, s: Rows) -> Rows:
    """Return the root t of t - s^2 e^{-t} = m, roughly: Newton's method from the left, where it is monotone."""
    variance = jnp.maximum(s**2, 1e-30)
    t = jnp.maximum(m, jnp.minimum(jnp.log(variance / jnp.maximum(-m, 1e-30)), 0.0))
    for _ in range(5):
        pull = variance * jnp.exp(-t)
        t = t - (t - pull - m) / (1.0 + pull)
    return t


def _sd(v: Rows) -> Rows:
    return jnp.minimum(jnp.sqrt(v), HUGE if v.dtype == jnp.float64 else 1e15)


def _widest(s: Rows) -> Float[Array, ""]:
    """Return the largest sd that decides the number of nodes: not NaN, not infinity."""
    return largest(jnp.where(jnp.isnan(s), 0.0, jnp.minimum(s, WIDEST)))


def _step(widest: Float[Array, ""], least: float, strip: float, growth: float) -> Float[Array, ""]:
    """Return the step for which exp(-2 pi a/h + a^2/2 + growth) is small, a = strip/s."""
    a = strip / jnp.maximum(widest, least)
    return 2 * jnp.pi * a / (LOG_ACCURACY + growth + 0.5 * a**2)
