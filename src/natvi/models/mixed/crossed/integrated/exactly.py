"""What a point of the hyper-parameters is worth exactly, and draws there.

The largest factor's effects are integrated out (`target.mixed.largest_out`); for the rest, coefficients and the effects
of the smaller factors, the inner Gaussian is the proposal. The mean of the weights p / q estimates p(y, hyper) without
bias, with draws of its own at every point: weighted points then stand for the exact posterior, however few the draws
(importance sampling squared).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.gaussian.blocked_precision import BlockedPrecision
from natvi.linalg import ArrowVector
from natvi.target.mixed.crossed_given import CrossedGiven
from natvi.target.mixed.largest_out import draw_largest, log_density

CELLS_AT_ONCE, MOST_AT_ONCE = 8192, 32  # rows times draws worked on together


class Exactly(NamedTuple):
    """What is known of a point.

    Attributes:
        log_ratios: log p(y, v, beta, hyper) - log q(v, beta) of every draw.
        beta: Mean of the coefficients.
        beta_covariance: Their covariance.
        effects: For every term mean and covariance of each level's effects.
        local: Draws of the largest factor's effects `(k, r, n)`, from the exact posterior given the point.
        shared: Draws of (beta, v) with them `(k, G)`.
    """

    log_ratios: Float[Array, " s"]
    beta: Float[Array, " p"]
    beta_covariance: Float[Array, "p p"]
    effects: Any
    local: Float[Array, "k r n"]
    shared: Float[Array, "k G"]


def look_exactly(
    given: CrossedGiven, q: BlockedPrecision, key: PRNGKeyArray, num_ratios: int, num_kept: int
) -> Exactly:
    """Weigh draws of the inner Gaussian's shared coordinates, keep some of them, and draw the rest given these.

    Args:
        given: The model at the point.
        q: The inner Gaussian.
        key: The source of randomness.
        num_ratios: How many draws are weighed, in pairs.
        num_kept: How many are kept.
    """
    p, G = given.whole.p, q.mean.shared.shape[0]
    first, second, third = jax.random.split(key, 3)
    half = jax.random.normal(first, (num_ratios // 2, G))
    z = jnp.concatenate([half, -half])
    size = int(np.clip(CELLS_AT_ONCE // given.whole.y.size, 1, min(MOST_AT_ONCE, num_ratios)))
    constant = jnp.sum(jnp.log(jnp.diagonal(q.factor.shared))) - 0.5 * G * jnp.log(2 * jnp.pi)

    def weigh(z: Array) -> tuple[ArrowVector, Array]:
        theta = q.push(ArrowVector(jnp.zeros_like(q.mean.local), z))
        return theta, log_density(given, theta.shared, theta.local) - constant + 0.5 * jnp.sum(z**2)

    theta, ratios = jax.lax.map(weigh, z, batch_size=size)
    ratios = jnp.where(jnp.isnan(ratios), -jnp.inf, ratios)
    weights = jax.nn.softmax(ratios)
    mean, covariance = _moments(theta.shared[:, :p, None], weights)
    at = _resample(second, weights, num_kept)
    kept = jax.tree.map(lambda a: a[at], theta)
    each = (kept.shared, kept.local, jax.random.split(third, num_kept))
    local = jax.lax.map(lambda own: draw_largest(given, *own), each, batch_size=min(size, num_kept))
    even = jnp.full(num_kept, 1.0 / num_kept)
    effects = []
    for term in given.terms():
        values = local[:, term.own] if term.largest else theta.shared[:, term.own].reshape(num_ratios, term.prior.r, -1)
        effects.append(_moments(values, even if term.largest else weights))
    return Exactly(ratios, mean[:, 0], covariance[..., 0], effects, local, kept.shared)


def _moments(values: Float[Array, "s r n"], weights: Float[Array, " s"]) -> tuple[Array, Array]:
    """Return mean and covariance over weighted draws."""
    mean = jnp.tensordot(weights, values, axes=1)
    errors = values - mean
    return mean, jnp.einsum("s,sin,sjn->ijn", weights, errors, errors)


def _resample(key: PRNGKeyArray, weights: Float[Array, " s"], num: int) -> Array:
    """Return positions of draws, as often as they weigh, in random order."""
    first, second = jax.random.split(key)
    places = (jnp.arange(num) + jax.random.uniform(first)) / num
    at = jnp.searchsorted(jnp.cumsum(weights), places)
    return jax.random.permutation(second, jnp.minimum(at, len(weights) - 1))
