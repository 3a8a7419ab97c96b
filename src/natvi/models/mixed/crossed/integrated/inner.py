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
from natvi.models.mixed.crossed.integrated.describe import (
    Described,
    Inner,
    describe,
    describe_exactly,
    draws_each,
    keys_of_points,
)
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


class Around(NamedTuple):
    """Where inner Gaussians start: the mean at some point, and the information of rows and coefficients' prior."""

    mean: ArrowVector
    information: BlockedMatrix


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


def _describe(
    target: CrossedTarget, around: Around, points: Array, found: tuple[Inner, Packed], keys: Array, num_ratios: int
) -> Described:
    """Describe the Gaussians at some points."""

    def one(at: tuple[Array, Inner, Packed, Array]) -> Described:
        hyper, inner, x, own = at
        given = CrossedGiven(target, hyper)
        q = _gaussian(given, around, x)
        return describe_exactly(given, q, inner, own, num_ratios) if num_ratios else describe(given, q, inner, own)

    return jax.lax.map(one, (points, *found, keys))


_described = quick_jit(_describe, static_argnums=5)


class IntegratedDensity:
    """log p(hyper) + the best bound given it, at many points; NumPy in, NumPy out."""

    def __init__(
        self,
        target: CrossedTarget,
        mean: ArrowVector,
        precision: BlockedMatrix,
        hyper: np.ndarray,
        num_ratios: int = 0,
    ) -> None:
        """Begin from a joint Gaussian: its mean and precision, of which rows and columns of `hyper` are left out.

        `num_ratios` draws are weighted exactly at every point; none: the second-order term is what is known.
        """
        self.target, p, b = target, target.p, target.b
        self.num_ratios = num_ratios
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

    def describe(self, points: Float[np.ndarray, "m h"], seed: int, common: bool = False) -> Described:
        """Return the inner Gaussians, with draws; `common` for the same random numbers at all points."""
        with float64():
            effects = self.around.mean.local.size + self.target.design.num_coordinates
            self.each = self.each or draws_each(len(points), effects)  # of all looks as many as of the first
            keys = keys_of_points(jax.random.key(seed), len(points) + AT_ONCE, self.each)
            keys = jnp.broadcast_to(keys[:1], keys.shape) if common else keys

        def one(x: Array, at: int) -> Described:
            own = keys[at : at + AT_ONCE]
            return _described(self.target, self.around, x, _look(self.target, self.around, x), own, self.num_ratios)

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
