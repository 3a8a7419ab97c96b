"""log p(y, theta_g) of a mixed model at many points, the random effects integrated out, in pieces of one size."""

import contextlib
import os
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.gaussian import ArrowPrecision
from natvi.linalg import small_blocks
from natvi.models.mixed.marginal.coordinates import log_volume, to_shared
from natvi.target import SumOfTerms
from natvi.target.mixed.marginal import default_nodes, marginal_log_density, mixed_parts
from natvi.x64 import float64

VALUES_AT_ONCE, SCORES_AT_ONCE = 64, 16  # points per compiled call
CELLS_AT_ONCE = 4096  # rows times points that are worked on together


class Surroundings(NamedTuple):
    """Where the random effects are to be looked for: near + slopes (theta_g - centre)."""

    centre: Float[Array, " g"]
    near: Float[Array, "r n"]
    slopes: Float[Array, "r g n"]


class MarginalDensity:
    """The exact marginal of the shared coordinates; NumPy in, NumPy out."""

    def __init__(
        self, target: SumOfTerms, posterior: ArrowPrecision, watch: Callable[[int, float], None] | None = None
    ) -> None:
        """Take the target, and a Gaussian fit that knows about where the random effects are.

        `watch` is told now and then how many points were evaluated, and the last value.
        """
        self.target = target
        self.num_evaluated = 0
        self._watch = watch
        with float64():
            self._around = _surroundings(posterior)

    def values(self, points: Float[np.ndarray, "m g"]) -> Float[np.ndarray, " m"]:
        """Return log p(y, theta_g) at every point theta_g."""
        return self._evaluate(_values, points, VALUES_AT_ONCE)[0]

    def quadrature_error(self, points: Float[np.ndarray, "m g"]) -> float:
        """Return the sd, over the points, of what twice as many nodes add to log p(y, theta_g).

        Random effects with an sd far above the scale of the link have a density with an edge, half a normal one, which
        quadrature around the mode follows badly.
        """
        finer = self._evaluate(_finer_values, points, VALUES_AT_ONCE)[0]
        return float(np.std(finer - self.values(points)))

    def scores(
        self, points: Float[np.ndarray, "m g"], curved: bool = False
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m g"]]:
        """Return log-densities and their gradients, of theta_g or of phi (`mixed_marginal_coordinates`)."""
        values, scores = self._evaluate(_curved_scores if curved else _scores, points, SCORES_AT_ONCE)
        return values, scores

    def _evaluate(self, function: jax.stages.Wrapped, points: np.ndarray, size: int) -> list[np.ndarray]:
        short = -len(points) % size
        filled = np.concatenate([points, np.repeat(points[-1:], short, axis=0)])

        def look(at: int) -> list[np.ndarray]:
            with float64():  # every thread has a precision of its own
                return [np.asarray(a) for a in function(self.target, self._around, filled[at : at + size])]

        parts = []
        with contextlib.closing(_side_by_side(look, range(0, len(filled), size))) as found:
            for part in found:
                parts.append(part)
                self.num_evaluated += size
                if self._watch is not None:
                    self._watch(self.num_evaluated, float(parts[-1][0][-1]))
        return [np.concatenate(part)[: len(points)] for part in zip(*parts, strict=True)]


def _side_by_side(look: Callable[[int], list[np.ndarray]], places: range) -> Generator[list[np.ndarray], None, None]:
    """Return what there is at every place, in order: the first alone, since it compiles, the others on all cores."""
    yield look(places[0])
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    try:
        yield from pool.map(look, places[1:])
    finally:
        pool.shutdown(cancel_futures=True)  # nobody waits for the rest after Ctrl-C


@jax.jit
def _surroundings(posterior: ArrowPrecision) -> Surroundings:
    # theta_i given theta_g has mean mu_i - T_i^-T T_gi' (theta_g - mu_g)
    slopes = small_blocks.solve_upper(posterior.factor.local, posterior.factor.cross.swapaxes(0, 1))
    return Surroundings(posterior.mean.shared, posterior.mean.local, -slopes)


def _at(
    target: SumOfTerms, around: Surroundings, shared: Float[Array, " g"], nodes: int | None = None
) -> Float[Array, ""]:
    move = jax.lax.stop_gradient(shared) - around.centre
    near = around.near + jnp.einsum("rgn,g->rn", around.slopes, move)
    return marginal_log_density(target, shared, near, nodes)


def _at_curved(target: SumOfTerms, around: Surroundings, phi: Float[Array, " g"]) -> Float[Array, ""]:
    return _at(target, around, to_shared(phi)) + log_volume(phi)


def _batch(target: SumOfTerms) -> int:
    cells = mixed_parts(target)[0].y.size
    return 1 << int(np.clip(np.log2(max(CELLS_AT_ONCE / cells, 1.0)), 0, 4))


def _each_value(
    finer: bool, target: SumOfTerms, around: Surroundings, points: Float[Array, "m g"]
) -> tuple[Float[Array, " m"]]:
    nodes = 2 * default_nodes(target) if finer else None
    batches = points.reshape(-1, _batch(target), points.shape[1])
    one = jax.vmap(lambda point: _at(target, around, point, nodes))
    return (jax.lax.map(one, batches).reshape(-1),)


def _each_score(
    density: Callable, target: SumOfTerms, around: Surroundings, points: Float[Array, "m g"]
) -> tuple[Float[Array, " m"], Float[Array, "m g"]]:
    batches = points.reshape(-1, _batch(target), points.shape[1])
    one = jax.vmap(jax.value_and_grad(lambda point: density(target, around, point)))
    values, scores = jax.lax.map(one, batches)
    return values.reshape(-1), scores.reshape(points.shape)


_values = jax.jit(partial(_each_value, False))
_finer_values = jax.jit(partial(_each_value, True))
_scores = jax.jit(partial(_each_score, _at))
_curved_scores = jax.jit(partial(_each_score, _at_curved))
