"""The paper's six algorithms (Tables 3, 4 and 6), each a composition of a structure, a gradient and an update rule.

    1E, 1N   update (mu, C) along Euclidean / natural gradients          any closed pattern of C
    2E, 2N   update (mu, T) along Euclidean / natural gradients          dense T
    1S, 2S   natural gradients with block-diagonal C / arrow-shaped T

Each recipe returns `init` and `step`; `step(state, key)` draws, differentiates and moves. The rule chooses the step
size: plain steps with `plain(rho)`, or any of `natvi.optimize`, e.g. `snngm(0.001)` for the natural recipes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.derivatives.first_order import first_order
from natvi.derivatives.second_order import second_order
from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.linalg import ArrowFactor, BlockFactor
from natvi.natural import corollary_mean, natural_direction
from natvi.optimize.rule import Rule, optax_rule, replace, scale_by_step
from natvi.typing import Target


class State(NamedTuple):
    """The Gaussian, the rule's state and the last estimate of the bound."""

    gaussian: Any
    rule: Any
    elbo: Float[Array, ""]


class Algorithm(NamedTuple):
    """`init(gaussian)` and `step(state, key)`."""

    init: Callable[[Any], State]
    step: Callable[[State, PRNGKeyArray], State]


def plain(rho: float | Callable[[Any], Any], natural: bool = False) -> Rule:
    """Return plain steps of size rho; along the natural gradient T moves first and mu with the new T (Corollary 1)."""
    if not natural:
        return optax_rule(scale_by_step(rho))

    def step(gaussian: Any, count: Any, gradient: Any) -> tuple[Any, Any]:
        size = rho(count) if callable(rho) else rho
        direction = natural_direction(gaussian, gradient.mean, gradient.factor)
        factor = jax.tree.map(lambda f, d: f + size * d, gaussian.factor, direction.factor)
        precision = isinstance(gaussian, PrecisionGaussian)
        move = corollary_mean(gaussian.factor, factor, gradient.mean) if precision else direction.mean
        mean = jax.tree.map(lambda m, d: m + size * d, gaussian.mean, move)
        return replace(gaussian, mean, factor), count + 1

    scale_by_step(rho)  # refuses a step size that is not positive
    return Rule(lambda _: jnp.zeros((), jnp.int32), step)


def algorithm_1e(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Euclidean gradient ascent in (mu, C): Algorithm 1E."""
    return _compose(target, rule or plain(1e-3), CovarianceGaussian, None, **estimate)


def algorithm_1n(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Natural gradient ascent in (mu, C): Algorithm 1N."""
    return _compose(target, rule or plain(1e-2, natural=True), CovarianceGaussian, None, **estimate)


def algorithm_2e(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Euclidean gradient ascent in (mu, T): Algorithm 2E."""
    return _compose(target, rule or plain(1e-3), PrecisionGaussian, None, **estimate)


def algorithm_2n(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Natural gradient ascent in (mu, T), the mean with the new T: Algorithm 2N."""
    return _compose(target, rule or plain(1e-2, natural=True), PrecisionGaussian, None, **estimate)


def algorithm_1s(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Natural gradient ascent in mu and a block-diagonal C: Algorithm 1S."""
    return _compose(target, rule or plain(1e-2, natural=True), CovarianceGaussian, BlockFactor, **estimate)


def algorithm_2s(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Natural gradient ascent in mu and the sparse T of a hierarchical model: Algorithm 2S."""
    return _compose(target, rule or plain(1e-2, natural=True), PrecisionGaussian, ArrowFactor, **estimate)


def _compose(
    target: Target,
    rule: Rule,
    kind: type,
    pattern: type | None,
    order: int = 1,
    num_samples: int = 1,
    antithetic: bool = False,
) -> Algorithm:
    if order not in (1, 2):
        raise ValueError(f"order must be 1 (first derivatives) or 2 (second derivatives), not {order!r}.")
    estimate = first_order if order == 1 else second_order

    def init(gaussian: Any) -> State:
        if not isinstance(gaussian, kind) or (pattern is not None and not isinstance(gaussian.factor, pattern)):
            needed = f"{kind.__name__} with a {pattern.__name__}" if pattern else kind.__name__
            came = f"{type(gaussian).__name__} with a {type(gaussian.factor).__name__}"
            raise ValueError(f"This algorithm updates a {needed}; got a {came}. See natvi.gaussian for the structures.")
        return State(gaussian, rule.init(gaussian), jnp.asarray(-jnp.inf))

    def step(state: State, key: PRNGKeyArray) -> State:
        gradient = estimate(target, state.gaussian, key, num_samples, antithetic, rule.with_entropy)
        gaussian, rule_state = rule.step(state.gaussian, state.rule, gradient)
        return State(gaussian, rule_state, gradient.elbo)

    return Algorithm(init, step)
