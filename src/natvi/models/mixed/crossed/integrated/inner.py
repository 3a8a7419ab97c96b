"""The best Gaussian of coefficients and effects given sds, correlations and dispersion, at many such points."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.gaussian.blocked_precision import BlockedPrecision
from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedMatrix
from natvi.optimize.ascent import AscentState, ascent_init, ascent_step, is_stalled
from natvi.optimize.structured.blocked_system import BlockedNatural, BlockedSystem
from natvi.optimize.system import Packed
from natvi.run.compiled_code import quick_jit
from natvi.target.mixed.crossed import CrossedTarget
from natvi.target.mixed.crossed_given import CrossedGiven
from natvi.x64 import float64, to_host

MOST_STEPS = 60
SETTLED, LITTLE = 1e-4, 1e-9  # sds by which a step may still move; relative rise of the bound
AT_ONCE = 8  # points per compiled call
CHECK_DRAWS = 64  # that see how far a Gaussian is from the exact density given the point, in pairs
FEWEST_KEPT, MOST_KEPT, KEPT_CELLS = 8, 32, 4e6  # draws kept of every Gaussian, in pairs; numbers in all draws


class Around(NamedTuple):
    """Where inner Gaussians start: the mean at some point, and the information of rows and coefficients' prior."""

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


def _solve(given: CrossedGiven, around: Around) -> tuple[Inner, Packed]:
    """Climb to the best Gaussian; return what is found there, and its natural parameters."""
    system, start = _begin(given, around)

    def going(state: AscentState) -> Array:
        small = jnp.max(jnp.abs(state.residual.shared)) < SETTLED
        done = (state.accepted > 1) & small & (state.gain <= LITTLE * (1.0 + jnp.abs(state.elbo)))
        lost = (state.evaluated > 0) & (state.accepted == 0)
        return (state.evaluated < MOST_STEPS) & ~done & ~is_stalled(state) & ~lost

    end = jax.lax.while_loop(going, lambda state: ascent_step(system, state), _typed(ascent_init(system, start)))
    _, score = given.expected_and_score(system.gaussian(end.x))
    settled = (jnp.max(jnp.abs(end.residual.shared)) < 100.0 * SETTLED).astype(jnp.float64)
    return Inner(end.elbo, score, settled), end.x


def _typed(state: AscentState) -> AscentState:
    return jax.tree.map(lambda a: jax.lax.convert_element_type(a, a.dtype), state)


@quick_jit
def _look(target: CrossedTarget, around: Around, points: Float[Array, "m h"]) -> tuple[Inner, Packed]:
    return jax.lax.map(lambda hyper: _solve(CrossedGiven(target, hyper), around), points)


def _gaussian(given: CrossedGiven, around: Around, x: Packed) -> BlockedPrecision:
    return _begin(given, around)[0].gaussian(x)


@quick_jit
def _settle(target: CrossedTarget, around: Around, hyper: Float[Array, " h"], x: Packed) -> Around:
    """Return what is around the best Gaussian at a point, whose precision is -E hess."""
    given = CrossedGiven(target, hyper)
    precision = _begin(given, around)[0].natural(x).precision
    information = jax.tree.map(jnp.subtract, precision, given.prior_precision(precision))
    return Around(_gaussian(given, around, x).mean, information)


@quick_jit
def _describe(
    target: CrossedTarget, around: Around, points: Array, inner: Inner, x: Packed, keys: Array, fixed: Array
) -> Described:
    """Describe the Gaussians at some points; ratios of p and q are taken at the same whitened draws everywhere."""
    each = (points, inner, x, keys)
    return jax.lax.map(lambda at: _describe_one(target, around, at[0], at[1], at[2], at[3], fixed), each)


def _describe_one(
    target: CrossedTarget, around: Around, hyper: Array, inner: Inner, x: Packed, keys: Array, fixed: Array
) -> Described:
    given, p = CrossedGiven(target, hyper), target.p
    q = _gaussian(given, around, x)
    constant = q.factor.log_determinant() - 0.5 * q.dimension * jnp.log(2 * jnp.pi)

    def log_ratio(own: tuple[Array, Array]) -> Array:
        z, sign = _normal(q, own[0]), own[1]
        square = 0.5 * (jnp.sum(z.local**2) + jnp.sum(z.shared**2))
        return given.value(q.push(jax.tree.map(lambda a: sign * a, z))) - constant + square

    def draw(own: tuple[Array, Array]) -> ArrowVector:
        z, sign = _normal(q, own[0]), own[1]
        return q.push(jax.tree.map(lambda a: sign * a, z))

    ratios = jax.lax.map(log_ratio, _both_ways(jax.random.split(fixed, CHECK_DRAWS // 2)))
    spread = jnp.mean((ratios - inner.bound) ** 2)
    local, shared = jax.lax.map(draw, _both_ways(keys))
    flat = jnp.concatenate([local.reshape(len(shared), -1), shared[:, p:]], axis=1)
    effects = [term.moments(q, 0, 0) for term in given.terms()]
    return Described(inner, q.mean.shared[:p], q.covariance[:p, :p], effects, spread, flat, shared[:, :p])


def _both_ways(keys: Array) -> tuple[Array, Array]:
    """Return keys and signs of antithetic draws, two of each key."""
    return jnp.concatenate([keys, keys]), jnp.repeat(jnp.array([1.0, -1.0]), len(keys))


def draws_each(num_points: int, num_effects: int) -> int:
    """Return how many draws of every Gaussian are kept, an even number: fewer where there are many effects.

    Example:
        >>> draws_each(128, 30), draws_each(256, 4100)
        (32, 8)
    """
    room = KEPT_CELLS / (num_points * max(num_effects, 1))
    return 2 * (int(np.clip(room, FEWEST_KEPT, MOST_KEPT)) // 2)


def _normal(q: BlockedPrecision, key: Array) -> ArrowVector:
    a, b = jax.random.split(key)
    return ArrowVector(jax.random.normal(a, q.mean.local.shape), jax.random.normal(b, q.mean.shared.shape))


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
            before, at = Around(start, information), jnp.asarray(hyper)
            many = jnp.repeat(at[None], AT_ONCE, axis=0)
            _, x = _look(self.target, before, many)
            self.around = _settle(self.target, before, at, jax.tree.map(lambda a: a[0], x))
        self.num_points = self.each = 0

    def values(self, points: Float[np.ndarray, "m h"]) -> Float[np.ndarray, " m"]:
        """Return the bound at every point; minus infinity where the inner ascent did not end properly."""
        found = self._all(points, self._inner)
        return np.where(found.settled > 0, found.bound, -np.inf)

    def scores(self, points: Float[np.ndarray, "m h"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m h"]]:
        """Return bounds and their derivatives."""
        found = self._all(points, self._inner)
        return found.bound, found.score

    def describe(self, points: Float[np.ndarray, "m h"], seed: int) -> Described:
        """Return the inner Gaussians, with draws."""
        with float64():
            first, fixed = jax.random.split(jax.random.key(seed))
            effects = self.around.mean.local.size + self.target.design.num_coordinates
            self.each = self.each or draws_each(len(points), effects)  # of all looks as many as of the first
            keys = jax.random.split(first, (len(points) + AT_ONCE, self.each // 2))

        def one(x: Array, at: int) -> Described:
            inner, natural = _look(self.target, self.around, x)
            return _describe(self.target, self.around, x, inner, natural, keys[at : at + AT_ONCE], fixed)

        return self._all(points, one)

    def _inner(self, x: Array, at: int) -> Inner:
        return _look(self.target, self.around, x)[0]

    def _all(self, points: np.ndarray, function: Callable[[Array, int], Any]) -> Any:
        """Return what a function says at all points, in pieces of one size."""
        filled = np.concatenate([points, np.repeat(points[-1:], -len(points) % AT_ONCE, axis=0)])
        parts = []
        with float64():
            for at in range(0, len(filled), AT_ONCE):
                parts.append(to_host(function(jnp.asarray(filled[at : at + AT_ONCE]), at)))
        self.num_points += len(points)
        return jax.tree.map(lambda *a: np.concatenate(a)[: len(points)], *parts)
