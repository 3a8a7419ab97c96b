"""The best Gaussian of coefficients and effects given sds, correlations and dispersion, at many such points."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.gaussian.blocked_precision import BlockedPrecision
from natvi.linalg import ArrowVector
from natvi.linalg.blocked import BlockedMatrix
from natvi.optimize.ascent import AscentState, ascent_init, ascent_step, is_stalled
from natvi.optimize.structured.blocked_system import BlockedNatural, BlockedSystem
from natvi.run.compiled_code import quick_jit
from natvi.target.mixed.crossed import CrossedTarget
from natvi.target.mixed.crossed_given import CrossedGiven
from natvi.x64 import float64, to_host

MOST_STEPS = 60
SETTLED, LITTLE = 1e-6, 1e-12  # sds by which a step may still move; relative rise of the bound
AT_ONCE = 8  # points per compiled call
CHECK_DRAWS = 32  # pairs of draws that see how far a Gaussian is from the exact density given the point


class Around(NamedTuple):
    """Where inner Gaussians start: the mean at some point, and the information that rows and coefficients' prior give."""

    mean: ArrowVector
    information: BlockedMatrix


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
    """The inner Gaussian at a point, as the answer needs it.

    Attributes:
        inner: The bound.
        beta: Mean of the coefficients.
        beta_covariance: Their covariance.
        effects: For every term mean and covariance of each level's effects.
        spread: Variance of log p - log q over draws of q: twice what the bound lacks, where that is Gaussian.
        draws: Of the effects, flat, the levels of the largest factor in the target's order.
        beta_draws: Of the coefficients.
    """

    inner: Inner
    beta: Float[Array, " p"]
    beta_covariance: Float[Array, "p p"]
    effects: Any
    spread: Float[Array, ""]
    draws: Float[Array, "d u"]
    beta_draws: Float[Array, "d p"]


def _begin(given: CrossedGiven, around: Around) -> tuple[BlockedSystem, BlockedNatural]:
    prior = given.prior_precision(around.information)
    precision = jax.tree.map(jnp.add, around.information, prior)
    start = BlockedNatural(given.whole.pattern.matvec(precision, around.mean), precision)
    return BlockedSystem.around(given, given.whole.pattern, start), start


def _solve(given: CrossedGiven, around: Around) -> tuple[Inner, BlockedPrecision]:
    system, start = _begin(given, around)

    def going(state: AscentState) -> Array:
        small = jnp.max(jnp.abs(state.residual.shared)) < SETTLED
        done = (state.accepted > 1) & small & (state.gain <= LITTLE * (1.0 + jnp.abs(state.elbo)))
        lost = (state.evaluated > 0) & (state.accepted == 0)
        return (state.evaluated < MOST_STEPS) & ~done & ~is_stalled(state) & ~lost

    end = jax.lax.while_loop(going, lambda state: ascent_step(system, state), _typed(ascent_init(system, start)))
    q = system.gaussian(end.x)
    _, score = given.expected_and_score(q)
    settled = (jnp.max(jnp.abs(end.residual.shared)) < 1e3 * SETTLED).astype(jnp.float64)
    return Inner(end.elbo, score, settled), q


def _typed(state: AscentState) -> AscentState:
    return jax.tree.map(lambda a: jax.lax.convert_element_type(a, a.dtype), state)


@quick_jit
def _look(target: CrossedTarget, around: Around, points: Float[Array, "m h"]) -> Inner:
    return jax.lax.map(lambda hyper: _solve(CrossedGiven(target, hyper), around)[0], points)


@quick_jit
def _settle(target: CrossedTarget, around: Around, hyper: Float[Array, " h"]) -> Around:
    """Return what is around the best Gaussian at a point."""
    given = CrossedGiven(target, hyper)
    _, q = _solve(given, around)
    hess = given.expected(q).hess
    information = jax.tree.map(lambda a, b: -a - b, hess, given.prior_precision(hess))
    return Around(q.mean, information)


def _describe_one(
    target: CrossedTarget, around: Around, hyper: Float[Array, " h"], key: Array, fixed: Array, num_draws: int
) -> Described:
    given = CrossedGiven(target, hyper)
    inner, q = _solve(given, around)
    p = target.p
    constant = q.factor.log_determinant() - 0.5 * q.dimension * jnp.log(2 * jnp.pi)

    def log_weight(key: Array) -> Array:
        z = _normal(q, key)
        square = 0.5 * (jnp.sum(z.local**2) + jnp.sum(z.shared**2))
        pair = [given.value(q.push(jax.tree.map(lambda a, s=s: s * a, z))) for s in (1.0, -1.0)]
        return jnp.stack(pair) - constant + square

    ratios = jax.lax.map(log_weight, jax.random.split(fixed, CHECK_DRAWS))
    spread = jnp.mean((ratios - inner.bound) ** 2)

    def draw(key: Array) -> ArrowVector:
        z = _normal(q, key)
        pair = [q.push(jax.tree.map(lambda a, s=s: s * a, z)) for s in (1.0, -1.0)]
        return jax.tree.map(lambda a, b: jnp.stack([a, b]), *pair)

    local, shared = jax.lax.map(draw, jax.random.split(key, num_draws // 2))
    shared = shared.reshape(num_draws, -1)
    flat = jnp.concatenate([local.reshape(num_draws, -1), shared[:, p:]], axis=1)
    effects = [term.moments(q, 0, 0) for term in given.terms()]
    covariance = q.covariance[:p, :p]
    return Described(inner, q.mean.shared[:p], covariance, effects, spread, flat, shared[:, :p])


def _normal(q: BlockedPrecision, key: Array) -> ArrowVector:
    a, b = jax.random.split(key)
    return ArrowVector(jax.random.normal(a, q.mean.local.shape), jax.random.normal(b, q.mean.shared.shape))


@quick_jit
def _describe(target: CrossedTarget, around: Around, points: Array, keys: Array, fixed: Array) -> Described:
    return jax.lax.map(lambda at: _describe_one(target, around, at[0], at[1], fixed, DRAWS_EACH), (points, keys))


DRAWS_EACH = 8


class IntegratedDensity:
    """log p(hyper) + the best bound given it, at many points; NumPy in, NumPy out."""

    def __init__(self, target: CrossedTarget, mean: ArrowVector, precision: BlockedMatrix, hyper: np.ndarray) -> None:
        """Begin from a joint Gaussian: its mean and precision, of which rows and columns of `hyper` are left out."""
        self.target, p, b = target, target.p, target.b
        keep = np.r_[0:p, b : mean.shared.shape[0]]
        with float64():
            self.target = jax.device_put(target)
            A, B, pairs, S = (jnp.asarray(part) for part in precision)
            matrix = BlockedMatrix(A, B[:p], pairs, S[keep][:, keep])
            given = CrossedGiven(self.target, jnp.asarray(hyper))
            information = jax.tree.map(lambda a, b: a - b, matrix, given.prior_precision(matrix))
            start = ArrowVector(jnp.asarray(mean.local), jnp.asarray(mean.shared)[keep])
            self.around = _settle(self.target, Around(start, information), jnp.asarray(hyper))
        self.num_points = 0

    def values(self, points: Float[np.ndarray, "m h"]) -> Float[np.ndarray, " m"]:
        """Return the bound at every point; minus infinity where the inner ascent did not end properly."""
        found = self._all(_look, points)
        return np.where(found.settled > 0, found.bound, -np.inf)

    def scores(self, points: Float[np.ndarray, "m h"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m h"]]:
        """Return bounds and their derivatives."""
        found = self._all(_look, points)
        return found.bound, found.score

    def describe(self, points: Float[np.ndarray, "m h"], seed: int) -> Described:
        """Return the inner Gaussians, with draws."""
        with float64():
            first, fixed = jax.random.split(jax.random.key(seed))
            keys = jax.random.split(first, len(points) + AT_ONCE)
        return self._all(lambda t, a, x, at: _describe(t, a, x, keys[at : at + AT_ONCE], fixed), points, True)

    def _all(self, function: Any, points: np.ndarray, places: bool = False) -> Any:
        short = -len(points) % AT_ONCE
        filled = np.concatenate([points, np.repeat(points[-1:], short, axis=0)])
        parts = []
        with float64():
            for at in range(0, len(filled), AT_ONCE):
                more = (at,) if places else ()
                parts.append(to_host(function(self.target, self.around, jnp.asarray(filled[at : at + AT_ONCE]), *more)))
        self.num_points += len(points)
        return jax.tree.map(lambda *a: np.concatenate(a)[: len(points)], *parts)
