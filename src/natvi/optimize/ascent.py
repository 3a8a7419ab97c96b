"""Deterministic ascent in the natural parameter, safeguarded and accelerated.

Table 1 of the paper, column lambda: with x = (Sigma^-1 mu, Sigma^-1) the natural gradient is G(x) - x, where

    G(x) = (S' mu + E grad, S'),   S' = -E hess,

so a step of size one is the fixed-point iteration x <- G(x). Its slow direction is a variance component against
the spread of its random effects; Anderson mixing of the last few G's removes it. Every candidate is checked: a
step counts only if the factor exists and the bound rises; else the mixing is dropped, then the step is halved.
One iteration evaluates the bound exactly once, so the compiled loop contains one copy of the model. The ascent knows no
model and no pattern: a system (`natvi.optimize.system`) evaluates x, in whatever structure x means.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from natvi.optimize.system import Evaluated, Packed, System
from natvi.over_hosts import add_up, as_first

MAX_HALVINGS = 40
FIRST_TRY = -2  # two accelerated candidates before a plain one: the second knows what the first has met


class AscentState(NamedTuple):
    """Everything the next iteration needs; a pytree of arrays, so that it can be saved and resumed."""

    x: Packed  # the accepted point
    G: Packed  # the full natural-gradient step from it
    residual: Packed  # that step in units of posterior sds
    elbo: Float[Array, ""]
    gain: Float[Array, ""]  # rise of the bound in the last accepted step
    past_G: Packed  # the last differences of G, in a ring
    past_residual: Packed
    depth: Int[Array, ""]  # how many differences are valid
    cursor: Int[Array, ""]  # where the next one goes
    halvings: Int[Array, ""]  # below 0: accelerated candidate, 0: plain step, k: step 2^-k
    accepted: Int[Array, ""]
    evaluated: Int[Array, ""]

    @property
    def memory(self) -> int:
        """How many differences there is room for."""
        return self.past_G.shared.shape[0]


@partial(jax.jit, inline=True)
def _evaluate(system: System, x: Packed) -> Evaluated:
    """Evaluate as the system does; a jitted function is traced once, however often shapes or the loop ask for it."""
    return system.evaluate(x)


def ascent_init(system: System, start: Any) -> AscentState:
    """Return the state whose first iteration evaluates the starting point."""
    return state_at(system, system.start(start))


def state_at(system: System, x: Packed) -> AscentState:
    """Return the state whose first iteration evaluates a point."""
    x = jax.tree.map(lambda a: jax.lax.convert_element_type(a, a.dtype), x)
    residual = jax.eval_shape(_evaluate, system, x).residual
    residual = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), residual)
    past_G, past_residual = jax.tree.map(lambda a: jnp.zeros((system.memory, *a.shape)), (x, residual))
    zero = jnp.zeros((), jnp.int32)
    return AscentState(
        x=x,
        G=x,
        residual=residual,
        elbo=jnp.asarray(-jnp.inf),
        gain=jnp.asarray(jnp.inf),
        past_G=past_G,
        past_residual=past_residual,
        depth=zero,
        cursor=zero,
        halvings=jnp.full((), FIRST_TRY, jnp.int32),
        accepted=zero,
        evaluated=zero,
    )


def ascent_step(system: System, state: AscentState) -> AscentState:
    """Try one candidate; accept it if the bound rises."""
    return digest(state, _evaluate(system, propose(state)))


def digest(state: AscentState, evaluated: Evaluated) -> AscentState:
    """Return the state after a candidate was evaluated."""
    candidate, G, residual, elbo = as_in_the_first(evaluated)
    # the bound is a sum of many terms: below its rounding error a fall means nothing
    slack = 1e-13 * (1.0 + jnp.abs(state.elbo))
    first = state.evaluated == 0
    usable = jnp.isfinite(elbo)
    rises = usable & ((elbo >= state.elbo - slack) | first)

    def keep(new: Array, old: Array) -> Array:
        return jnp.where(rises, new, old)

    def push(past: Array, new: Array, old: Array) -> Array:
        # a candidate that falls teaches the mixing as much as one that rises
        return past.at[state.cursor].set(jnp.where(usable, new - old, past[state.cursor]))

    # without a factor there is nothing to learn, and another accelerated candidate would be the same
    refused = jnp.where(usable, state.halvings + 1, jnp.maximum(state.halvings + 1, 0))
    learned = usable & ~first  # the start is not a step
    next_try = jnp.where(first, 0, FIRST_TRY)  # without a past the first candidate is the plain step
    depth = jnp.where(learned, jnp.minimum(state.depth + 1, state.memory), state.depth)
    cursor = jnp.where(learned, (state.cursor + 1) % state.memory, state.cursor)
    return AscentState(
        x=jax.tree.map(keep, candidate, state.x),
        G=jax.tree.map(keep, G, state.G),
        residual=jax.tree.map(keep, residual, state.residual),
        elbo=keep(elbo, state.elbo),
        gain=keep(elbo - state.elbo, state.gain),
        past_G=jax.tree.map(push, state.past_G, G, state.G),
        past_residual=jax.tree.map(push, state.past_residual, residual, state.residual),
        depth=depth.astype(jnp.int32),
        cursor=cursor.astype(jnp.int32),
        halvings=jnp.where(rises, next_try, refused).astype(jnp.int32),
        accepted=state.accepted + rises.astype(jnp.int32),
        evaluated=state.evaluated + 1,
    )


def is_stalled(state: AscentState) -> Bool[Array, ""] | np.bool_:
    """Whether no step, however short, raises the bound."""
    return state.halvings > MAX_HALVINGS


def as_in_the_first(evaluated: Evaluated) -> Evaluated:
    """Return what was found with the shared numbers of the first process: all of them decide on the same bits."""
    shared = as_first((evaluated.x.shared, evaluated.G.shared, evaluated.residual.shared, evaluated.bound))
    x, G, residual = (Packed(part.local, own) for part, own in zip(evaluated[:3], shared[:3], strict=True))
    return Evaluated(x, G, residual, shared[3])


def propose(state: AscentState) -> Packed:
    """Return the next candidate."""
    step = 0.5 ** jnp.maximum(state.halvings, 0)
    weights = jnp.where(state.halvings < 0, _mixing_weights(state), 0.0)  # 0 as long as there is no past

    def combine(x: Array, G: Array, past: Array) -> Array:
        return x + step * (G - x) - sum(weights[j] * past[j] for j in range(state.memory))

    return jax.tree.map(combine, state.x, state.G, state.past_G)


def _mixing_weights(state: AscentState) -> Float[Array, " m"]:
    """Solve min |residual - sum_j w_j past_j|^2 over the valid differences."""
    flat = jax.tree.map(lambda a: a.reshape(state.memory, -1), state.past_residual)
    local, local_right = add_up((flat.local @ flat.local.T, flat.local @ state.residual.local.reshape(-1)))
    gram = local + flat.shared @ flat.shared.T
    right = local_right + flat.shared @ state.residual.shared
    valid = jnp.arange(state.memory) < state.depth
    gram = jnp.where(valid[:, None] & valid[None], gram, 0.0)
    ridge = 1e-10 * jnp.trace(gram) + jnp.finfo(gram.dtype).tiny
    gram += jnp.diag(jnp.where(valid, ridge, 1.0))
    return as_first(jnp.linalg.solve(gram, jnp.where(valid, right, 0.0)))
