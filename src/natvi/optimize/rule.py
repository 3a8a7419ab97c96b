"""What every update rule is: a pair of functions, `init` and `step`.

A rule receives gradients of the bound, all pointing uphill, and moves the Gaussian. Most rules are Optax chains around
one new transform, the natural direction; the pair (mean, factor) is the parameter that Optax sees.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from natvi.derivatives.first_order import BoundGradient
from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.natural import corollary_mean, natural_direction

G = TypeVar("G", CovarianceGaussian, PrecisionGaussian)
StepSize = float | Callable[[Any], Any]


class Rule(NamedTuple):
    """An update rule; `with_entropy` says whether its gradients include the entropy's."""

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, BoundGradient], tuple[Any, Any]]
    with_entropy: bool = True


def replace(gaussian: G, mean: Any, factor: Any) -> G:
    """Return the Gaussian with another mean and factor."""
    return eqx.tree_at(lambda q: (q.mean, q.factor), gaussian, (mean, factor))


def optax_rule(transform: optax.GradientTransformation) -> Rule:
    """Make a rule of an Optax chain; the Gaussian itself is handed to the chain as `params`."""

    def init(gaussian: Any) -> Any:
        return transform.init((gaussian.mean, gaussian.factor))  # type: ignore[arg-type]

    def step(gaussian: Any, state: Any, gradient: BoundGradient) -> tuple[Any, Any]:
        updates, state = transform.update((gradient.mean, gradient.factor), state, gaussian)  # type: ignore[arg-type]
        mean, factor = optax.apply_updates((gaussian.mean, gaussian.factor), updates)  # type: ignore[misc]
        return replace(gaussian, mean, factor), state

    return Rule(init, step)


def to_natural(new_factor: bool = False) -> optax.GradientTransformation:
    """Turn Euclidean gradients into the natural direction (Lemma 1, Theorems 1 and 4).

    Args:
        new_factor: For precision factors, move the mean with the factor updated by a full step (Corollary 1).
    """

    def convert(gradient: Any, gaussian: Any) -> Any:
        direction = natural_direction(gaussian, *gradient)
        mean = direction.mean
        if new_factor:
            moved = jax.tree.map(jnp.add, gaussian.factor, direction.factor)
            mean = corollary_mean(gaussian.factor, moved, gradient[0])
        return mean, direction.factor

    return optax.stateless(convert)


def normalize_jointly() -> optax.GradientTransformation:
    """Divide mean and factor by their one joint Euclidean norm."""

    def normalize(updates: Any, _: Any) -> Any:
        norm = optax.tree.norm(updates)
        scale = jnp.where(norm > 0, 1.0 / jnp.where(norm > 0, norm, 1.0), 0.0)
        return jax.tree.map(lambda u: scale * u, updates)

    return optax.stateless(normalize)


def scale_by_step(step_size: StepSize, factor: float = 1.0) -> optax.GradientTransformation:
    """Multiply by a step size, constant or a schedule of the step count."""
    if callable(step_size):
        return optax.scale_by_schedule(lambda count: factor * step_size(count))
    if not step_size > 0:
        raise ValueError(f"A step size must be positive; got {step_size!r}.")
    return optax.scale(factor * step_size)
