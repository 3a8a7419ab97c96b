"""An algorithm: a target, an estimate of its gradients and an update rule, put together.

`move(target, state, key)` is a function of the target, so that compiled code serves any data and any minibatch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.derivatives.exact import ExactTarget, exact_order
from natvi.derivatives.first_order import first_order
from natvi.derivatives.per_example import curvature_gradient, exact_curvature
from natvi.derivatives.second_order import second_order
from natvi.derivatives.stein import stein_curvature
from natvi.linalg import vector
from natvi.natural.estimate import first_order_natural
from natvi.optimize.rule import Rule
from natvi.typing import Target


class State(NamedTuple):
    """The Gaussian, the rule's state and the last estimate of the bound."""

    gaussian: Any
    rule: Any
    elbo: Float[Array, ""]


class Move(NamedTuple):
    """One step as a function of the target, so that compiled code serves any data and any minibatch."""

    rule: Rule
    order: int | str = 1
    num_samples: int = 1
    antithetic: bool = False

    def __call__(self, target: Any, state: State, key: PRNGKeyArray) -> State:
        """Draw, differentiate and move."""
        if self.order == 1 and self.rule.follow is not None:
            draws = (key, self.num_samples, self.antithetic)
            elbo, gradient, direction = first_order_natural(target, state.gaussian, *draws)
            gaussian, rule_state = self.rule.follow(state.gaussian, state.rule, gradient, direction)
            return State(gaussian, rule_state, elbo)
        gradient = self._gradient(target, state.gaussian, key)
        gaussian, rule_state = self.rule.step(state.gaussian, state.rule, gradient)
        return State(gaussian, rule_state, gradient.elbo)

    def _gradient(self, target: Any, gaussian: Any, key: PRNGKeyArray) -> Any:
        draws = (key, self.num_samples, self.antithetic)
        if self.rule.curvature:
            if self.order == "exact":
                return exact_curvature(target, gaussian)
            estimate = stein_curvature if self.rule.curvature == "stein" else curvature_gradient
            return estimate(target, gaussian, *draws)
        if self.order == "exact":
            return exact_order(target, gaussian, self.rule.with_entropy)
        estimate = first_order if self.order == 1 else second_order
        return estimate(target, gaussian, *draws, self.rule.with_entropy)


class Algorithm(NamedTuple):
    """`init(gaussian)` and `step(state, key)`; `move(target, state, key)` is the step on any target of the kind."""

    init: Callable[[Any], State]
    target: Any
    move: Any  # a Move, or what is called like one

    def step(self, state: State, key: PRNGKeyArray) -> State:
        """Take one step."""
        return self.move(self.target, state, key)


def compose(
    target: Target,
    rule: Rule,
    kind: type,
    sparse: bool = False,
    order: int | str = 1,
    num_samples: int = 1,
    antithetic: bool = False,
) -> Algorithm:
    """Put a target, a rule and an estimate together, for Gaussians of one kind.

    Args:
        target: The log-density.
        rule: How gradients become steps.
        kind: CovarianceGaussian or PrecisionGaussian.
        sparse: Whether the factor has to fall into small blocks, as `block`, `local-global` and `arrow` ones do.
        order: 1 for first derivatives, 2 for second derivatives, "exact" for targets that know their expectations.
        num_samples: Draws per step; the paper uses one.
        antithetic: Whether draws come in pairs z, -z.
    """
    if order not in (1, 2, "exact"):
        raise ValueError(f"order must be 1 (first derivatives), 2 (second derivatives) or 'exact', not {order!r}.")
    if order == "exact" and not isinstance(target, ExactTarget):
        raise ValueError(f"order='exact' needs a target that knows its expectations; {type(target).__name__} does not.")
    if order == 2 and rule.curvature:
        raise ValueError(
            "VOGN takes gradients of rows, IVON that of a draw (order=1), both exact expectations (order='exact'), "
            "not order=2."
        )

    def init(gaussian: Any) -> State:
        # the recipe names the parametrization that its update is written for, (mu, C) or (mu, T)
        right_kind = isinstance(gaussian, kind)
        # a factor with no more entries than coordinates is diagonal: it has no blocks
        blocks = gaussian.factor.in_small_blocks and gaussian.factor.num_entries > vector.length(gaussian.mean)
        if not right_kind or (sparse and not blocks):
            needed = kind.__name__ + (" with a factor in small blocks (block, local-global, arrow)" if sparse else "")
            came = f"{type(gaussian).__name__} with a {type(gaussian.factor).__name__}"
            raise ValueError(f"This algorithm updates a {needed}; got a {came}. See natvi.gaussian for the structures.")
        return State(gaussian, rule.init(gaussian), jnp.asarray(-jnp.inf))

    return Algorithm(init, target, Move(rule, order, num_samples, antithetic))
