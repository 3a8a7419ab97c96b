"""What the answer needs of the Gaussian at a point: moments, draws, and what its bound lacks.

The bound lacks the divergence of the Gaussian from the exact posterior given the point. It is known without bias where
the largest factor's effects can be integrated out (`exactly`); elsewhere as half the variance of log p - log q over
draws of the Gaussian, which it is where that is close to normal.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.gaussian.blocked_precision import BlockedPrecision
from natvi.linalg import ArrowVector
from natvi.models.mixed.crossed.integrated.exactly import look_exactly
from natvi.target.mixed.crossed_given import CrossedGiven

CHECK_DRAWS = 64  # that see how far a Gaussian is from the exact density given the point, in pairs
FEWEST_KEPT, MOST_KEPT, KEPT_CELLS = 8, 32, 4e6  # draws kept of every point, in pairs; numbers in all draws


class Inner(NamedTuple):
    """What is found at a point.

    Attributes:
        bound: log p(hyper) + the best bound given it.
        score: Its derivative.
        settled: Whether the inner ascent has ended properly.
    """

    bound: Float[Array, ""]
    score: Float[Array, " h"]
    settled: Float[Array, ""]


class Described(NamedTuple):
    """A point of the hyper-parameters, as the answer needs it.

    Attributes:
        inner: The bound.
        beta: Mean of the coefficients.
        beta_covariance: Their covariance.
        effects: For every term mean and covariance of each level's effects.
        lacking: What the bound lacks of log p(y, hyper).
        log_ratios: log p - log q of draws of q: of (v, beta) where it is exact, of all effects elsewhere.
        draws: Of the effects, flat, the levels of the largest factor in the target's order.
        beta_draws: Of the coefficients.
    """

    inner: Inner
    beta: Float[Array, " p"]
    beta_covariance: Float[Array, "p p"]
    effects: Any
    lacking: Float[Array, ""]
    log_ratios: Float[Array, " s"]
    draws: Float[Array, "d u"]
    beta_draws: Float[Array, "d p"]


def describe(given: CrossedGiven, q: BlockedPrecision, inner: Inner, keys: Array) -> Described:
    """Describe the Gaussian at a point; the last key, that of the ratios, should be the same everywhere."""
    p = given.whole.p
    constant = q.factor.log_determinant() - 0.5 * q.dimension * jnp.log(2 * jnp.pi)

    def log_ratio(own: tuple[Array, Array]) -> Array:
        z, sign = _normal(q, own[0]), own[1]
        square = 0.5 * (jnp.sum(z.local**2) + jnp.sum(z.shared**2))
        return given.value(q.push(jax.tree.map(lambda a: sign * a, z))) - constant + square

    def draw(own: tuple[Array, Array]) -> ArrowVector:
        z, sign = _normal(q, own[0]), own[1]
        return q.push(jax.tree.map(lambda a: sign * a, z))

    ratios = jax.lax.map(log_ratio, _both_ways(jax.random.split(keys[-1], CHECK_DRAWS // 2)))
    lacking = 0.5 * jnp.mean((ratios - inner.bound) ** 2)
    local, shared = jax.lax.map(draw, _both_ways(keys[:-1]))
    effects = [term.moments(q, 0, 0) for term in given.terms()]
    draws = _flat(local, shared[:, p:]), shared[:, :p]
    return Described(inner, q.mean.shared[:p], q.covariance[:p, :p], effects, lacking, ratios, *draws)


def describe_exactly(given: CrossedGiven, q: BlockedPrecision, inner: Inner, keys: Array, num_ratios: int) -> Described:
    """Describe what is exact at a point, the Gaussian being where draws to be weighted come from."""
    p = given.whole.p
    found = look_exactly(given, q, keys[0], num_ratios, 2 * (len(keys) - 1))
    top = jnp.max(found.log_ratios)
    lacking = top + jnp.log(jnp.mean(jnp.exp(found.log_ratios - top))) - inner.bound
    draws = _flat(found.local, found.shared[:, p:]), found.shared[:, :p]
    return Described(inner, *found[1:4], lacking, found.log_ratios, *draws)


def draws_each(num_points: int, num_effects: int) -> int:
    """Return how many draws of every Gaussian are kept, an even number: fewer where there are many effects.

    Example:
        >>> draws_each(128, 30), draws_each(256, 4100)
        (32, 8)
    """
    room = KEPT_CELLS / (num_points * max(num_effects, 1))
    return 2 * (int(np.clip(room, FEWEST_KEPT, MOST_KEPT)) // 2)


def keys_of_points(key: Array, num_points: int, each: int) -> Array:
    """Return the keys of every point: one for each pair of draws, and one that all points share."""
    first, common = jax.random.split(key)
    own = jax.random.split(first, (num_points, each // 2))
    return jnp.concatenate([own, jnp.broadcast_to(common, (num_points, 1))], axis=1)


def _flat(local: Float[Array, "d r n"], others: Float[Array, "d m"]) -> Float[Array, "d u"]:
    return jnp.concatenate([local.reshape(len(others), -1), others], axis=1)


def _both_ways(keys: Array) -> tuple[Array, Array]:
    """Return keys and signs of antithetic draws, two of each key."""
    return jnp.concatenate([keys, keys]), jnp.repeat(jnp.array([1.0, -1.0]), len(keys))


def _normal(q: BlockedPrecision, key: Array) -> ArrowVector:
    a, b = jax.random.split(key)
    return ArrowVector(jax.random.normal(a, q.mean.local.shape), jax.random.normal(b, q.mean.shared.shape))
