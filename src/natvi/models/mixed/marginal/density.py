"""log p(y, theta_g) of a mixed model at many points, the random effects integrated out, in pieces of one size."""

import contextlib
import os
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natvi.gaussian import ArrowPrecision
from natvi.models.mixed.filling import filled_points, shared_places, with_filling
from natvi.models.mixed.marginal.coordinates import log_volume, slopes, to_shared, volume_slopes
from natvi.run.compiled_code import quick_jit, thorough_jit
from natvi.target import SumOfTerms
from natvi.target.mixed.marginal import Nodes, default_nodes, marginal_score, marginal_value, mixed_parts
from natvi.x64 import float64

POINTS_AT_ONCE = 64  # per compiled call, at most
CELLS_AT_ONCE = 4096  # rows times points that are worked on together
FEW_CELLS = 8192  # with so few, what runs faster is not worth the longer wait for the compiler
PIECES = 4  # calls for each core, at least, that none waits long for the others


class Surroundings(NamedTuple):
    """Where the random effects are to be looked for: near + slopes (theta_g - centre)."""

    centre: Float[np.ndarray, " g"]
    near: Float[np.ndarray, "r n"]
    slopes: Float[np.ndarray, "r g n"]


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
        self._around = _surroundings(with_filling(target, posterior))
        self._places = shared_places(target, posterior.mean.shared.shape[0])

    def values(self, points: Float[np.ndarray, "m g"]) -> Float[np.ndarray, " m"]:
        """Return log p(y, theta_g) at every point theta_g."""
        return self._evaluate(_values, points, default_nodes(self.target))[0]

    def quadrature_error(self, points: Float[np.ndarray, "m g"]) -> float:
        """Return the sd, over the points, of what twice as many nodes add to log p(y, theta_g).

        Random effects with an sd far above the scale of the link have a density with an edge, half a normal one, which
        quadrature around the mode follows badly.
        """
        finer = self._evaluate(_values, points, default_nodes(self.target, 2))[0]
        return float(np.std(finer - self.values(points)))

    def scores(
        self, points: Float[np.ndarray, "m g"], curved: bool = False
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m g"]]:
        """Return log-densities and their gradients, of theta_g or of phi (`coordinates`)."""
        shared = to_shared(points, np) if curved else points
        values, scores = self._evaluate(_scores, shared, default_nodes(self.target))
        if not curved:
            return values, scores
        inner = np.stack([score @ slopes(phi) for score, phi in zip(scores, points, strict=True)])
        return values + log_volume(points, np), inner + volume_slopes(points)

    def _evaluate(self, function: Callable, own: np.ndarray, nodes: Nodes) -> list[np.ndarray]:
        points = filled_points(self.target, own)
        batch, m = _batch(self.target), len(points)
        # as many points a call as keep all cores busy; the program is the same for every number of them
        share = -(-m // (PIECES * _cores() * batch)) * batch
        size = min(share, POINTS_AT_ONCE)

        def look(at: int) -> list[np.ndarray]:
            some = points[at : at + size]
            filled = np.concatenate([some, np.repeat(some[-1:], POINTS_AT_ONCE - len(some), axis=0)])
            batches = filled.reshape(-1, batch, points.shape[1])
            with float64():  # every thread has a precision of its own
                found = function(self.target, self._around, batches, -(-len(some) // batch), nodes)
                return [np.asarray(a)[: len(some)] for a in found]

        parts, program = [], _name(function, self.target, self._around)
        if program in _coming and _coming.pop(program).exception() is None:  # else it is compiled here, or fails here
            _compiled.add(program)
        with contextlib.closing(_side_by_side(look, range(0, m, size), program not in _compiled)) as found:
            for part in found:
                _compiled.add(program)
                parts.append(part)
                self.num_evaluated += len(part[0])
                if self._watch is not None:
                    self._watch(self.num_evaluated, float(part[0][-1]))
        found = [np.concatenate(part) for part in zip(*parts, strict=True)]
        if self._places is None:
            return found
        # log N(0; 0, 1) of every coefficient that is filling
        values = found[0] + 0.5 * np.log(2 * np.pi) * (points.shape[1] - own.shape[1])
        return [values, *(scores[:, self._places] for scores in found[1:])]


def _side_by_side(
    look: Callable[[int], list[np.ndarray]], places: range, first_alone: bool
) -> Generator[list[np.ndarray], None, None]:
    """Return what there is at every place, in order, on all cores; a first that compiles is to be alone."""
    alone = 1 if first_alone or len(places) == 1 else 0
    for at in places[:alone]:
        yield look(at)
    if len(places) == alone:
        return
    pool = ThreadPoolExecutor(_cores())
    try:
        yield from pool.map(look, places[alone:])
    finally:
        pool.shutdown(cancel_futures=True)  # nobody waits for the rest after Ctrl-C


_compiled: set[Hashable] = set()  # the programs that there are
_coming: dict[Hashable, Future] = {}  # those that are being compiled on another core


def _name(function: Callable, target: SumOfTerms, around: Surroundings) -> Hashable:
    """Return what tells one program from another."""
    leaves, tree = jax.tree.flatten(target)
    return function, tree, around.slopes.shape, tuple(np.shape(leaf) for leaf in leaves)


def prepare(target: SumOfTerms, num_places: int, num_shared: int) -> None:
    """Compile on another core what the check will need; what the marginal method needs too, where it often comes to it.

    The Gaussian fit, which is compiled at the same time, of yes/no responses seldom passes its check.
    """
    if _cores() < 2:
        return
    likelihood, effects = mixed_parts(target)
    zeros = (np.zeros(shape) for shape in (num_shared, (effects.r, num_places), (effects.r, num_shared, num_places)))
    around = Surroundings(*zeros)
    family: Any = likelihood.family
    functions = [_values, _scores] if getattr(family, "name", "") in ("bernoulli", "binomial") else [_values]
    wanted = {_name(function, target, around): function for function in functions}
    batches = np.zeros((POINTS_AT_ONCE // _batch(target), _batch(target), num_shared))
    pool = ThreadPoolExecutor(1)
    for program, function in wanted.items():
        if program not in _compiled and program not in _coming:
            _coming[program] = pool.submit(_compile, function, target, around, batches)
    pool.shutdown(wait=False)


def _compile(function: Callable, target: SumOfTerms, around: Surroundings, batches: np.ndarray) -> None:
    with float64():
        function(target, around, batches, 0, default_nodes(target))


@cache
def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _surroundings(posterior: ArrowPrecision) -> Surroundings:
    # theta_i given theta_g has mean mu_i - T_i^-T T_gi' (theta_g - mu_g)
    T, cross = np.asarray(posterior.factor.local), np.asarray(posterior.factor.cross)
    r, slopes = len(T), np.empty((len(T), *cross.shape[::2]))
    for k in reversed(range(r)):
        inner = sum((T[j, k] * slopes[j] for j in range(k + 1, r)), np.zeros_like(slopes[k]))
        slopes[k] = (cross[:, k] - inner) / T[k, k]
    return Surroundings(np.asarray(posterior.mean.shared), np.asarray(posterior.mean.local), -slopes)


def _batch(target: SumOfTerms) -> int:
    cells = mixed_parts(target)[0].y.size
    return 1 << int(np.clip(np.log2(max(CELLS_AT_ONCE / cells, 1.0)), 0, 4))


def _program(one: Callable, with_scores: bool) -> Callable:
    """Return the compiled loop over the first `count` of batches of points."""

    def every(
        target: SumOfTerms,
        around: Surroundings,
        batches: Float[Array, "b m g"],
        count: Int[Array, ""] | int,
        nodes: Nodes,
    ) -> tuple[Array, ...]:
        def at(shared: Float[Array, " g"]) -> tuple[Array, ...]:
            near = around.near + jnp.einsum("rgn,g->rn", around.slopes, shared - around.centre)
            found = one(target, shared, near, nodes)
            return found if with_scores else (found,)

        def add(k: Array, found: tuple[Array, ...]) -> tuple[Array, ...]:
            return tuple(a.at[k].set(new) for a, new in zip(found, jax.vmap(at)(batches[k]), strict=True))

        room = (jnp.zeros(batches.shape[:2]), jnp.zeros(batches.shape))
        filled = jax.lax.fori_loop(0, count, add, room if with_scores else room[:1])
        return tuple(a.reshape(-1, *a.shape[2:]) for a in filled)

    thorough, quick = thorough_jit(every), quick_jit(every)

    def call(target: SumOfTerms, *rest: Any) -> tuple[Array, ...]:
        return (quick if mixed_parts(target)[0].y.size <= FEW_CELLS else thorough)(target, *rest)

    return call


_values = _program(marginal_value, False)
_scores = _program(marginal_score, True)
