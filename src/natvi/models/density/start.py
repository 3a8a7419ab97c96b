"""A log-density tried before the work: what is wrong with it, said plainly, and a start where it is finite."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natvi.models.density.evaluator import BATCH, Evaluator
from natvi.models.density.space.maps import Space
from natvi.models.density.space.parameters import Parameters

SCALES = (0.1, 0.5, 1.0, 2.0, 5.0, 20.0)  # around init, where a finite start is looked for
START_SDS = (0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)

Density = Callable[[Array], Array]


class Opened(NamedTuple):
    """A log-density that can be used.

    Attributes:
        evaluator: The program.
        start: Where to start from.
        notes: What the user should know.
        density: The log-density of the free vector.
    """

    evaluator: Evaluator
    start: np.ndarray
    notes: tuple[str, ...]
    density: Density


def open_density(logdensity: Any, space: Space, seed: int) -> Opened:
    """Check the log-density and find a start; inside `float64()`.

    Raises:
        ValueError: With what came and what to do.
    """
    if not callable(logdensity):
        raise ValueError(
            f"the log-density must be a function of the parameters; got {type(logdensity).__name__}. Give e.g. "
            "lambda p: -0.5 * p['a'] ** 2."
        )
    notes: list[str] = []
    density, width = _as_function(logdensity, space, jnp.float64), "double"
    try:
        shape = _trace(density, space.start)
    except _MixedPrecisionError as error:
        density, width = _as_function(logdensity, space, jnp.float32), "single"
        try:
            shape = _trace(density, space.start)
        except _MixedPrecisionError:
            raise ValueError(f"the log-density cannot be computed at init: {error}.") from error
    if shape.shape != ():
        raise ValueError(
            f"the log-density must return one number, and returned an array of shape {shape.shape}. Sum over its "
            "entries: jnp.sum(...)."
        )
    if shape.dtype.kind != "f":
        raise ValueError(f"the log-density must return a real number, and returned {shape.dtype}.")
    if width == "single" or shape.dtype == jnp.float32:
        notes.append("the log-density is computed in single precision: about three digits of an answer are sure")
    _check_steady(density, space.start)
    evaluator = Evaluator(density, space)
    start, said = _finite_start(evaluator, space, seed)
    return Opened(evaluator, start, (*notes, *said), density)


def _as_function(logdensity: Callable[[Any], Any], space: Space, width: Any) -> Density:
    def density(theta: Array) -> Array:
        tree, log_det = space.tree(theta)
        value = logdensity(jax.tree.map(lambda leaf: leaf.astype(width), tree))
        if isinstance(value, float | int):
            return value + log_det
        if value is None or isinstance(value, tuple | list | dict | str):
            what = "nothing (None): end it with return" if value is None else f"a {type(value).__name__}: return a sum"
            raise _NoNumberError(f"the log-density must return one number, and returned {what}.")
        return value if jnp.shape(value) else value + log_det.astype(jnp.result_type(value))

    return density


class _NoNumberError(ValueError):
    """The function returns something that is no array."""


class _MixedPrecisionError(Exception):
    """The function mixes single and double precision where JAX does not allow it."""


def _trace(density: Density, start: np.ndarray) -> jax.ShapeDtypeStruct:
    theta = jnp.asarray(start)
    try:
        found = jax.eval_shape(lambda t: jnp.asarray(density(t)), theta)
        if found.shape == () and found.dtype.kind == "f":
            jax.eval_shape(jax.grad(lambda t: jnp.asarray(density(t))), theta)
        return found
    except _NoNumberError:
        raise
    except (
        jax.errors.TracerArrayConversionError,
        jax.errors.ConcretizationTypeError,
        jax.errors.UnexpectedTracerError,
    ) as error:
        raise ValueError(
            "the log-density cannot be traced by JAX: it turns parameters into NumPy arrays or Python numbers. Write "
            "it with jax.numpy, jnp.where in place of if, and without float() or functions of NumPy "
            f"({type(error).__name__})."
        ) from error
    except TypeError as error:
        if "dtype" in str(error) or "float32" in str(error):
            raise _MixedPrecisionError(str(error).partition("\n")[0]) from error
        raise ValueError(f"the log-density cannot be computed at init: {_first_line(error)}.") from error
    except Exception as error:
        raise ValueError(
            f"the log-density cannot be computed or differentiated at init: {_first_line(error)}. Try it on init "
            "first, with jax.grad."
        ) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0].rstrip('.')}"


def _check_steady(density: Density, start: np.ndarray) -> None:
    """Refuse a function that is another one each time it is called."""
    theta = jnp.asarray(start)
    # a new function each time: of one that it has seen JAX keeps the trace
    traced = [jax.make_jaxpr(lambda t: density(t))(theta) for _ in range(2)]
    consts = [[np.asarray(c) for c in one.consts if hasattr(c, "dtype") and c.dtype.kind in "fiub"] for one in traced]
    same = len(consts[0]) == len(consts[1]) and all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(*consts, strict=True)
    )
    if same and str(traced[0].jaxpr) == str(traced[1].jaxpr):
        return
    # beside the start, where what is random may be multiplied by zero
    theta = theta + 0.1 * np.random.default_rng(0).uniform(-1, 1, theta.shape)
    values = [float(jax.jit(lambda t: density(t))(theta)) for _ in range(2)]
    if values[0] != values[1] and not (np.isnan(values[0]) and np.isnan(values[1])):
        raise ValueError(_random(*values))


def _random(first: float, again: float) -> str:
    return (
        f"the log-density gives different values at one point ({first:g} and {again:g}): it is random. Draw what is "
        "random once, outside of it; for random parts of large data give data= and batch_size=."
    )


def _finite_start(evaluator: Evaluator, space: Space, seed: int) -> tuple[np.ndarray, list[str]]:
    """Return a start at which value and gradient are finite, and what was done to find it."""
    rng = np.random.default_rng([seed, 1])
    tried = space.start + np.concatenate(
        [np.zeros((1, len(space.start)))]
        + [s * rng.uniform(-1, 1, ((BATCH - 2) // len(SCALES), len(space.start))) for s in SCALES]
    )
    looked = evaluator(np.concatenate([tried, tried[:1]]))
    first, again = looked.values[0], looked.values[-1]
    if first != again and np.isfinite(first):
        raise ValueError(_random(first, again))
    finite = np.isfinite(looked.values) & np.all(np.isfinite(looked.gradients), axis=1)
    finite = finite[:-1]
    if not finite.any():
        raise ValueError(
            f"the log-density is {looked.values[0]:g} at init and not finite at {len(tried) - 1} points around it, or "
            "its gradient is not. Start where both are finite; give constraints of parameters by constrain=, e.g. "
            "{'sd': 'positive'}; look for missing values, and for data that the model can never give."
        )
    if not np.any(looked.gradients[:-1][finite]):
        walls = "; where it is flat between walls, give these by constrain=, e.g. natvi.bijectors.interval(0.0, 1.0)"
        raise ValueError(
            "the log-density does not depend on its parameters: its gradient is zero everywhere around init. Look for "
            f"parameters that are not used, or for a result that is rounded or compared{'' if finite.all() else walls}."
        )
    if finite[0]:
        return space.start, []
    at = int(np.flatnonzero(finite)[0])  # the scales grow: the first is the nearest
    distance = float(np.max(np.abs(tried[at] - space.start)))
    return tried[at], [
        f"the log-density is {looked.values[0]:g} at init, or its gradient is not finite there: the fit started from a "
        f"point up to {distance:.2g} away from it"
    ]


def unused(free: Parameters, gradients: np.ndarray) -> list[str]:
    """Return the names of parameters on which the log-density does not depend."""
    still = ~np.any(gradients != 0, axis=0)
    owners = free.owners
    return [name for j, name in enumerate(free.names) if np.all(still[owners == j]) and np.any(owners == j)]
