"""Whose state it is: the state of a noisy fit names its method and optimizer, so that no other goes on from it.

RVB1 and RVB2 standardise the random effects about different centres: the Gaussian of the one means something else to
the other, although its arrays have the same shapes. The same holds for what two optimizers keep between steps.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax


@partial(jax.tree_util.register_dataclass, data_fields=["step"], meta_fields=["way", "optimizer"])
@dataclass(frozen=True)
class OwnedStep:
    """What stands in a state's place of the recipe's own, once the state has left its fit.

    Attributes:
        step: The recipe's state: Gaussian, rule, last bound.
        way: "gva", "rvb1" or "rvb2".
        optimizer: The name of the rule.
    """

    step: Any
    way: str
    optimizer: str


def sign_state(state: Any, way: str, optimizer: str) -> Any:
    """Return a state that says where it comes from; the state is a named tuple with a field `algorithm`."""
    return state._replace(algorithm=OwnedStep(state.algorithm, way, optimizer))


def open_state(state: Any, kind: type, way: str, optimizer: str) -> Any:
    """Return the state as the loop knows it, or explain why this fit cannot go on from it.

    Args:
        state: What the user gave; None stays None.
        kind: The named tuple that the loop needs.
        way: The method of the fit that is to go on.
        optimizer: Its optimizer.

    Returns:
        The state as it was before `sign_state`.
    """
    if state is None:
        return None
    owned = state.algorithm if isinstance(state, kind) else None
    if isinstance(owned, OwnedStep) and (owned.way, owned.optimizer) == (way, optimizer):
        return state._replace(algorithm=owned.step)
    came, cure = type(state).__name__, "Leave it out to start afresh."
    if isinstance(state, kind):
        came = "that of another one"
    if isinstance(owned, OwnedStep):
        came += (
            f": it comes from method={owned.way!r} with optimizer={owned.optimizer!r}, and this fit has "
            f"method={way!r} with optimizer={optimizer!r}"
        )
        cure = "Fit with the former to go on from it, or leave state out to start afresh."
    raise ValueError(
        "state must be `result.state` of an earlier fit of this model by the same method and optimizer, not "
        f"{came}. {cure}"
    )
