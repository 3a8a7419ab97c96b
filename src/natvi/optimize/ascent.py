"""Deterministic ascent in the natural parameter, safeguarded and accelerated.

Table 1 of the paper, column lambda: with x = (Sigma^-1 mu, Sigma^-1) the natural gradient is G(x) - x, where

    G(x) = (S' mu + E grad, S'),   S' = -E hess,

so a step of size one is the fixed-point iteration x <- G(x). Its slow direction is a variance component against
the spread of its random effects; Anderson mixing of the last few G's removes it. Every candidate is checked: a
step counts only if the factor exists and the bound rises; else the mixing is dropped, then the step is halved.
One iteration evaluates the bound exactly once, so the compiled loop contains one copy of the model.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natvi.derivatives import exact_derivatives
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowMatrix, ArrowVector, small_blocks
from natvi.target import SumOfTerms

MEMORY = 4
MAX_HALVINGS = 40


class Natural(NamedTuple):
    """Natural parameters: Sigma^-1 mu and Sigma^-1."""

    linear: ArrowVector
    precision: ArrowMatrix


class Residual(NamedTuple):
    """The natural gradient in units of posterior sds: T^-1 E grad, and T_i^-1 (S'_i - S_i) T_i^-T / sqrt 2.

    The second part, the relative change of each group's precision, is what makes the mixing see the spread
    of the random effects; without it twice as many steps are needed.
    """

    local: Float[Array, "r n"]
    shared: Float[Array, " g"]
    spread: Float[Array, "r r n"]


class AscentState(NamedTuple):
    """Everything the next iteration needs; a pytree of arrays, so that it can be saved and resumed."""

    x: Natural  # the accepted point
    G: Natural  # the full natural-gradient step from it
    residual: Residual
    elbo: Float[Array, ""]
    gain: Float[Array, ""]  # rise of the bound in the last accepted step
    past_G: tuple[Natural, ...]  # last differences of G, the newest first
    past_residual: tuple[Residual, ...]
    depth: Int[Array, ""]  # how many differences are valid
    halvings: Int[Array, ""]  # -1: accelerated candidate, 0: plain step, k: step 2^-k
    accepted: Int[Array, ""]
    evaluated: Int[Array, ""]


def ascent_init(start: Natural) -> AscentState:
    """Return the state whose first iteration evaluates the starting point."""
    r, n = start.linear.local.shape
    residual = Residual(jnp.zeros((r, n)), jnp.zeros_like(start.linear.shared), jnp.zeros((r, r, n)))
    blank = jax.tree.map(jnp.zeros_like, start)
    zero = jnp.zeros((), jnp.int32)
    return AscentState(
        x=start,
        G=start,
        residual=residual,
        elbo=jnp.asarray(-jnp.inf),
        gain=jnp.asarray(jnp.inf),
        past_G=(blank,) * MEMORY,
        past_residual=(residual,) * MEMORY,
        depth=zero,
        halvings=zero,
        accepted=zero,
        evaluated=zero,
    )


def ascent_step(target: SumOfTerms, state: AscentState) -> AscentState:
    """Try one candidate; accept it if the bound rises."""
    candidate = _propose(state)
    G, residual, elbo = _evaluate(target, candidate)
    # the bound is a sum of many terms: below its rounding error a fall means nothing
    slack = 1e-13 * (1.0 + jnp.abs(state.elbo))
    rises = jnp.isfinite(elbo) & ((elbo >= state.elbo - slack) | (state.evaluated == 0))

    def keep(new: Array, old: Array) -> Array:
        return jnp.where(rises, new, old)

    def push(past: tuple, new: Natural | Residual, old: Natural | Residual) -> tuple:
        newest = jax.tree.map(jnp.subtract, new, old)
        return tuple(jax.tree.map(keep, a, b) for a, b in zip((newest, *past[:-1]), past, strict=True))

    # the start is not a step; after a shortened step the map is far from its linearisation: forget the past
    fresh = (state.halvings > 0) | (state.evaluated == 0)
    depth = jnp.where(fresh, 0, jnp.minimum(state.depth + 1, MEMORY))
    return AscentState(
        x=jax.tree.map(keep, candidate, state.x),
        G=jax.tree.map(keep, G, state.G),
        residual=jax.tree.map(keep, residual, state.residual),
        elbo=keep(elbo, state.elbo),
        gain=keep(elbo - state.elbo, state.gain),
        past_G=push(state.past_G, G, state.G),
        past_residual=push(state.past_residual, residual, state.residual),
        depth=keep(depth, state.depth).astype(jnp.int32),
        halvings=jnp.where(rises, jnp.where(fresh, 0, -1), state.halvings + 1).astype(jnp.int32),
        accepted=state.accepted + rises.astype(jnp.int32),
        evaluated=state.evaluated + 1,
    )


def is_stalled(state: AscentState) -> Bool[Array, ""]:
    """Whether no step, however short, raises the bound."""
    return state.halvings > MAX_HALVINGS


def _evaluate(target: SumOfTerms, x: Natural) -> tuple[Natural, Residual, Float[Array, ""]]:
    gaussian = ArrowPrecision.from_natural(x.linear, x.precision)
    elbo, grad, hess = exact_derivatives(target, gaussian)
    precision: ArrowMatrix = jax.tree.map(jnp.negative, hess)
    linear = jax.tree.map(jnp.add, precision.matvec(gaussian.mean), grad)
    whitened = gaussian.factor.solve(grad)
    half = small_blocks.solve_lower(gaussian.factor.local, precision.local - x.precision.local)
    spread = small_blocks.solve_lower(gaussian.factor.local, half.swapaxes(0, 1)) / jnp.sqrt(2.0)
    return Natural(linear, precision), Residual(whitened.local, whitened.shared, spread), elbo


def _propose(state: AscentState) -> Natural:
    step = 0.5 ** jnp.maximum(state.halvings, 0)
    weights = jnp.where(state.halvings < 0, _mixing_weights(state), 0.0)

    def combine(x: Array, G: Array, *past: Array) -> Array:
        mixed = x + step * (G - x)
        for j in range(MEMORY):
            mixed -= weights[j] * past[j]
        return mixed

    return jax.tree.map(combine, state.x, state.G, *state.past_G)


def _mixing_weights(state: AscentState) -> Float[Array, " m"]:
    """Solve min |residual - sum_j w_j past_j|^2 over the valid differences."""
    past = state.past_residual
    gram = jnp.stack([jnp.stack([_inner(a, b) for b in past]) for a in past])
    right = jnp.stack([_inner(a, state.residual) for a in past])
    valid = jnp.arange(MEMORY) < state.depth
    gram = jnp.where(valid[:, None] & valid[None], gram, 0.0)
    ridge = 1e-10 * jnp.trace(gram) + jnp.finfo(gram.dtype).tiny
    gram += jnp.diag(jnp.where(valid, ridge, 1.0))
    return jnp.linalg.solve(gram, jnp.where(valid, right, 0.0))


def _inner(a: Residual, b: Residual) -> Float[Array, ""]:
    return sum((jnp.sum(x * y) for x, y in zip(a, b, strict=True)), jnp.zeros(()))
