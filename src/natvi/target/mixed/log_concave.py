"""Draws from many log-concave densities at once, by rejection below three tangents.

A concave function lies below each of its tangents, so the least of three tangents of log f, one near the mode and one
on either side, is the logarithm of an envelope: an exponential piece in the middle and one in each tail. With the outer
ones at a drop of one nat the envelope of a normal density holds 1.13 times its mass. The points of contact need not be
good for the draws to be exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

REFINEMENTS = 3
MOST_ROUNDS = 200  # a density is left with the last proposal after that many: with 60% accepted it cannot happen

LogDensity = Callable[[Float[Array, " n"]], Float[Array, " n"]]


class _Tangents(NamedTuple):
    """Points of contact, values and slopes `(3, n)`: left, middle, right."""

    x: Float[Array, "3 n"]
    value: Float[Array, "3 n"]
    slope: Float[Array, "3 n"]


class _Rounds(NamedTuple):
    x: Float[Array, " n"]
    done: Bool[Array, " n"]
    count: Int[Array, ""]


def draw_log_concave(key: PRNGKeyArray, log_density: LogDensity, n: int) -> Float[Array, " n"]:
    """Draw once from each of n densities.

    Args:
        key: The source of randomness.
        log_density: Takes one point per density and gives the logarithms, up to constants. Each must be concave, with
            its mode near zero and a width of about one.
        n: The number of densities.

    Returns:
        One draw from each.
    """
    tangents = _tangents(log_density, n)

    def try_again(state: _Rounds) -> _Rounds:
        u = jax.random.uniform(jax.random.fold_in(key, state.count), (3, n), minval=jnp.finfo(state.x.dtype).tiny)
        x, log_envelope = _propose(u[0], u[1], tangents)
        accepted = jnp.log(u[2]) <= log_density(x) - tangents.value[1] - log_envelope
        return _Rounds(jnp.where(state.done, state.x, x), state.done | accepted, state.count + 1)

    start = _Rounds(tangents.x[1], jnp.zeros(n, bool), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(lambda s: ~jnp.all(s.done) & (s.count < MOST_ROUNDS), try_again, start).x


def _tangents(log_density: LogDensity, n: int) -> _Tangents:
    """Find points on either side of the middle where the density has dropped by about one nat."""

    def touch(x: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return jax.jvp(log_density, (x,), (jnp.ones_like(x),))

    def move(_: Array, state: tuple[Float[Array, "2 n"], _Tangents]) -> tuple[Float[Array, "2 n"], _Tangents]:
        left, right = state[0]
        x = jnp.stack([-left, jnp.zeros(n), right])
        value, slope = jax.vmap(touch)(x)
        t = jnp.stack(
            [
                _better_distance(left, value[1] - value[0], slope[0]),
                _better_distance(right, value[1] - value[2], -slope[2]),
            ]
        )
        return t, _Tangents(x, value, slope)

    nothing = jnp.zeros((3, n))
    start = (jnp.full((2, n), jnp.sqrt(2.0)), _Tangents(nothing, nothing, nothing))
    return jax.lax.fori_loop(0, 1 + REFINEMENTS, move, start)[1]


def _better_distance(
    t: Float[Array, " n"], drop: Float[Array, " n"], steepness: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Take the drop for c t^p, with p from the slope, and solve c t^p = 1; go further out before the mode."""
    falling = (drop > 0.02) & (steepness > 0.0)
    power = jnp.clip(t * steepness / jnp.where(falling, drop, 1.0), 1.0, 8.0)
    solved = jnp.clip(jnp.where(falling, drop, 1.0) ** (-1.0 / power), 0.2, 5.0)
    factor = jnp.where(falling, solved, 2.0)
    # a drop that is not finite: far too far out
    return t * jnp.where(jnp.isfinite(drop) & jnp.isfinite(steepness), factor, 0.2)


def _propose(
    u: Float[Array, " n"], v: Float[Array, " n"], tangents: _Tangents
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Turn two uniform numbers into a draw from the envelope; return its logarithm there too, less the middle value."""
    (x_left, _, x_right), value, (s_left, s_middle, s_right) = tangents
    v_left, v_right = value[0] - value[1], value[2] - value[1]
    # where the middle tangent s_middle x meets the outer ones; concavity makes s_left > s_middle > s_right
    a = (s_left * x_left - v_left) / (s_left - s_middle)
    b = (v_right - s_right * x_right) / (s_middle - s_right)
    a, b = jnp.minimum(a, 0.0), jnp.maximum(b, 0.0)
    rise = s_middle * (b - a)
    mass = jnp.stack(
        [
            jnp.exp(s_middle * a) / s_left,
            jnp.exp(s_middle * a) * (b - a) * _mean_exp(rise),
            jnp.exp(s_middle * b) / -s_right,
        ]
    )
    share = jnp.cumsum(mass / jnp.sum(mass, axis=0), axis=0)
    tail = -jnp.log(v)
    small = jnp.abs(rise) < 1e-6
    inside = a + (b - a) * jnp.where(small, v, jnp.log1p(v * jnp.expm1(rise)) / jnp.where(small, 1.0, rise))
    x = jnp.where(u < share[0], a - tail / s_left, jnp.where(u < share[1], inside, b - tail / s_right))
    log_envelope = jnp.where(
        x < a, s_middle * a + s_left * (x - a), jnp.where(x > b, s_middle * b + s_right * (x - b), s_middle * x)
    )
    return x, log_envelope


def _mean_exp(y: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return (e^y - 1) / y, the mean of e^x over (0, y)."""
    small = jnp.abs(y) < 1e-6
    return jnp.where(small, 1.0 + 0.5 * y, jnp.expm1(y) / jnp.where(small, 1.0, y))
