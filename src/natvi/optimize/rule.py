"""What every update rule is: a pair of functions, `init` and `step`.

A rule receives gradients of the bound, all pointing uphill, and moves the Gaussian. Most rules are Optax chains around
one new transform, the natural direction; the pair (mean, factor) is the parameter that Optax sees.
"""

import inspect
import math
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from natvi.derivatives.first_order import BoundGradient
from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.linalg import vector
from natvi.natural import natural_direction
from natvi.natural.direction import NaturalDirection

G = TypeVar("G", CovarianceGaussian, PrecisionGaussian)
P = ParamSpec("P")
StepSize = float | Callable[[Any], Any]
Transform = Any  # an optax.GradientTransformation; Optax is imported where a rule is made, not before


class Rule(NamedTuple):
    """An update rule, and which gradients it takes.

    Rules are made once per setting (their makers are cached), so that fits with the same rule share compiled code.

    Attributes:
        init: The rule's state before the first step, from the Gaussian.
        step: (Gaussian, state, gradient) -> (Gaussian, state).
        with_entropy: Whether its gradients include the entropy's.
        curvature: Where it takes a curvature (`CurvatureGradient`) instead of a gradient in the factor, what that is
            made of: "rows" for the gradients of examples, "stein" for one draw's gradient; else "".
        follow: For natural rules, (Gaussian, state, gradient in the mean, direction) -> (Gaussian, state): the same
            step for those who have the natural direction already.
        name: The rule with its settings, by which a checkpoint knows it.
    """

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, Any], tuple[Any, Any]]
    with_entropy: bool = True
    curvature: str = ""
    follow: Callable[[Any, Any, Any, NaturalDirection], tuple[Any, Any]] | None = None
    name: str = ""


def rule_maker(make: Callable[P, Rule]) -> Callable[P, Rule]:
    """Let a function make each rule once, and name it after its settings."""
    signature = inspect.signature(make)

    @wraps(make)
    def maker(*args: P.args, **kwargs: P.kwargs) -> Rule:
        settings = signature.bind(*args, **kwargs)
        settings.apply_defaults()
        return once(tuple(settings.arguments.items()))

    @cache
    def once(settings: tuple[tuple[str, Any], ...]) -> Rule:
        shown = ", ".join(f"{key}={getattr(value, '__qualname__', value)}" for key, value in settings)
        return make(**dict(settings))._replace(name=f"{make.__name__}({shown})")  # type: ignore[call-arg]

    return maker


def replace(gaussian: G, mean: Any, factor: Any) -> G:
    """Return the Gaussian with another mean and factor."""
    return eqx.tree_at(lambda q: (q.mean, q.factor), gaussian, (mean, factor))


def optax_rule(transform: Transform) -> Rule:
    """Make a rule of an Optax chain; the Gaussian itself is handed to the chain as `params`."""
    import optax

    def init(gaussian: Any) -> Any:
        return transform.init((gaussian.mean, gaussian.factor))  # type: ignore[arg-type]

    def step(gaussian: Any, state: Any, gradient: BoundGradient) -> tuple[Any, Any]:
        updates, state = transform.update((gradient.mean, gradient.factor), state, gaussian)  # type: ignore[arg-type]
        mean, factor = optax.apply_updates((gaussian.mean, gaussian.factor), updates)  # type: ignore[misc]
        return replace(gaussian, mean, factor), state

    return Rule(init, step)


def natural_rule(transform: Transform, new_factor: bool = False) -> Rule:
    """Make a rule of an Optax chain that is fed natural directions.

    Args:
        transform: What happens to the direction.
        new_factor: For precision factors, let the mean's direction use the updated T (Corollary 1). The chain's step
            may depend on mean and factor together, so a trial step with the old T gives the new one.
    """

    def step(gaussian: Any, state: Any, gradient: BoundGradient) -> tuple[Any, Any]:
        direction = natural_direction(gaussian, gradient.mean, gradient.factor)
        return follow(gaussian, state, gradient.mean, direction)

    def follow(gaussian: Any, state: Any, gradient: Any, direction: NaturalDirection) -> tuple[Any, Any]:
        if new_factor:
            if gaussian.entropy_sign > 0:  # the entropy rises with log |F|: F is C
                raise ValueError("new_factor=True is for factors T of the precision (Corollary 1); this factor is C.")
            trial, _ = transform.update(tuple(direction), state, gaussian)  # type: ignore[arg-type]
            moved = jax.tree.map(jnp.add, gaussian.factor, trial[1])  # type: ignore[index]
            direction = direction._replace(mean=gaussian.moved_mean(moved, gradient, direction.mean))
        return along.step(gaussian, state, BoundGradient(jnp.zeros(()), *direction))

    along = optax_rule(transform)
    return Rule(along.init, step, follow=follow)


def to_natural() -> Transform:
    """Turn Euclidean gradients into the natural direction (Lemma 1, Theorems 1 and 4)."""
    import optax

    return optax.stateless(lambda gradient, gaussian: tuple(natural_direction(gaussian, *gradient)))  # type: ignore[arg-type]


def normalize_jointly() -> Transform:
    """Divide mean and factor by their one joint Euclidean norm."""
    import optax

    def normalize(updates: Any, _: Any) -> Any:
        norm = jnp.sqrt(vector.dot(updates, updates))
        scale = jnp.where(norm > 0, 1.0 / jnp.where(norm > 0, norm, 1.0), 0.0)
        return jax.tree.map(lambda u: scale * u, updates)

    return optax.stateless(normalize)


def scale_by_step(step_size: StepSize, factor: float = 1.0) -> Transform:
    """Multiply by a step size, constant or a schedule of the step count (`size_at`)."""
    import optax

    check_step_size(step_size)
    if callable(step_size):
        return optax.scale_by_schedule(lambda count: factor * size_at(step_size, jnp.asarray(count)))
    return optax.scale(factor * step_size)


def check_step_size(step_size: StepSize) -> None:
    """Refuse a step size that is not positive, or a schedule that does not begin with a positive number."""
    if callable(step_size):
        with jax.ensure_compile_time_eval():  # a rule may be put together while its step is being traced
            first = np.asarray(step_size(0))
        if first.ndim or not 0 < float(first) < math.inf:
            raise ValueError(f"A schedule must give positive step sizes; at step 0 it gave {first!r}.")
    elif isinstance(step_size, bool) or not 0 < step_size < math.inf:
        raise ValueError(f"A step size must be positive and finite; got {step_size!r}.")


def size_at(step_size: StepSize, count: Int[Array, ""]) -> Any:
    """Return the step size at a step count from 0.

    A schedule may come down to zero. Where it is negative or NaN the size is NaN: the step is not finite, the fit
    refuses it and asks for the same count again, so that its outcome is `nonfinite` with the last good Gaussian.
    """
    if not callable(step_size):
        return step_size
    size = step_size(count)
    return jnp.where(size >= 0, size, jnp.nan)
