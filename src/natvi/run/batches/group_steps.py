"""One batch of groups: its blocks brought to their optimum, and what it then says about the shared coordinates.

q(theta) = q(theta_g) prod_i q(theta_i | theta_g), where theta_i given theta_g has precision A_i and mean
A_i^-1 (h_i - B_i' theta_g). With q(theta_g) fixed, the groups are independent, and the natural-gradient step of size
one for a group's own part (Table 1, column lambda) is

    A_i <- -E hess_ii,   B_i <- -E hess_gi,   h_i <- A_i mu_i + B_i' mu_g + E grad_i.

With the conditionals fixed, all that q(theta_g) sees of group i is a function of theta_g alone, whose expected gradient
and Hessian follow from d/d theta_g = d_g - K_i' d_i with K_i = A_i^-1 B_i':

    s_i = E grad_g - K_i' E grad_i,     P_i = -(E hess_gg - K_i' E hess_ig - E hess_gi K_i + K_i' E hess_ii K_i).

So group i contributes the natural parameters (P_i mu_g + s_i, P_i) to q(theta_g): at the optimum of its own part,
P_i is the Schur complement C_i - B_i A_i^-1 B_i'. The contributions of all groups and the prior's, added up, are the
step of size one for q(theta_g). By the envelope theorem its gradient is that of the bound with all groups at their
optimum: a batch of groups gives an unbiased estimate.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector, small_blocks
from natvi.target import SumOfTerms, Term
from natvi.target.mixed.marginal import mixed_parts
from natvi.target.point_mass import PointMass

MAX_HALVINGS = 20


class Site(NamedTuple):
    """A contribution to the natural parameters of q(theta_g), and to the bound."""

    linear: Float[Array, " g"]
    precision: Float[Array, "g g"]
    bound: Float[Array, ""]


class Blocks(NamedTuple):
    """The conditionals of a batch of groups: h_i, A_i and B_i."""

    linear: Float[Array, "r k"]
    precision: Float[Array, "r r k"]
    cross: Float[Array, "g r k"]


class _Solving(NamedTuple):
    """The loop over one batch: the accepted blocks, the step from them, and what belongs to them."""

    blocks: Blocks
    proposal: Blocks
    site: Site
    gain: Float[Array, ""]
    halvings: Int[Array, ""]
    evaluated: Int[Array, ""]


@jax.jit
def solve_batch(
    target: SumOfTerms,
    mean: Float[Array, " g"],
    precision: Float[Array, "g g"],
    start: Blocks,
    max_steps: Int[Array, ""],
    tolerance: Float[Array, ""],
) -> tuple[Blocks, Site]:
    """Bring the blocks of a batch to their optimum, with q(theta_g) fixed.

    Args:
        target: The terms of the batch's groups, without those of theta_g alone.
        mean: Of q(theta_g).
        precision: Of q(theta_g).
        start: The blocks to start from.
        max_steps: Evaluations at most, that of the start included.
        tolerance: The gain of the batch's bound, in nats, at which it is done.

    Returns:
        The blocks, and the batch's contribution to q(theta_g).
    """
    root = jnp.linalg.cholesky(precision)

    def unfinished(state: _Solving) -> Array:
        small = (state.gain < tolerance) & (state.halvings == 0)
        return (state.evaluated < max_steps) & ~small & (state.halvings < MAX_HALVINGS)

    def step(state: _Solving) -> _Solving:
        size = 0.5**state.halvings
        candidate = jax.tree.map(lambda a, b: a + size * (b - a), state.blocks, state.proposal)
        proposal, site = _evaluate(target, mean, root, candidate)
        gain = site.bound - state.site.bound
        slack = 1e-13 * (1.0 + jnp.abs(site.bound))
        rises = jnp.isfinite(site.bound) & (gain >= -slack)
        halvings = jnp.where(rises, 0, state.halvings + 1).astype(jnp.int32)
        moved = _Solving(candidate, proposal, site, gain, halvings, state.evaluated + 1)
        stayed = state._replace(halvings=halvings, evaluated=state.evaluated + 1)
        return jax.tree.map(lambda a, b: jnp.where(rises, a, b), moved, stayed)

    # the first candidate is the start itself: the compiled loop contains one copy of the model
    nothing = Site(jnp.zeros_like(mean), jnp.zeros_like(precision), jnp.asarray(-jnp.inf))
    zero = jnp.zeros((), jnp.int32)
    state = _Solving(start, start, nothing, jnp.asarray(jnp.inf), zero, zero)
    state = jax.lax.while_loop(unfinished, step, state)
    return state.blocks, state.site


def _evaluate(
    target: SumOfTerms, mean: Float[Array, " g"], root: Float[Array, "g g"], blocks: Blocks
) -> tuple[Blocks, Site]:
    q = joint_gaussian(mean, root, blocks)
    value, grad, hess = target.expected(q)
    local = -hess.local
    cross = -hess.cross
    step = jnp.sum(local * q.mean.local[None], axis=1) + jnp.tensordot(mean, cross, axes=1) + grad.local
    # K_i = A_i^-1 B_i' = T_i^-T T_gi'
    K = small_blocks.solve_upper(q.factor.local, q.factor.cross.swapaxes(0, 1))
    mixed = jnp.einsum("gik,ihk->gh", hess.cross, K)
    inner = jnp.einsum("igk,ijk,jhk->gh", K, hess.local, K)
    P = -(hess.shared - mixed - mixed.T + inner)
    score = grad.shared - jnp.einsum("igk,ik->g", K, grad.local)
    size = q.mean.local.size
    own = jnp.sum(jnp.log(jnp.stack([q.factor.local[k, k] for k in range(q.factor.local.shape[0])])))
    bound = value + 0.5 * size * (1 + jnp.log(2 * jnp.pi)) - own  # E log p + the entropy of the conditionals
    return Blocks(step, local, cross), Site(P @ mean + score, P, bound)


def joint_gaussian(mean: Float[Array, " g"], root: Float[Array, "g g"], blocks: Blocks) -> ArrowPrecision:
    """Return q of a batch's groups and the shared coordinates; `root` is T_g."""
    T = small_blocks.cholesky(blocks.precision)
    cross = small_blocks.solve_lower(T, blocks.cross.swapaxes(0, 1)).swapaxes(0, 1)
    right = blocks.linear - jnp.tensordot(mean, blocks.cross, axes=1)
    local = small_blocks.solve_upper(T, small_blocks.solve_lower(T, right))
    inverse = solve_triangular(root, jnp.eye(mean.shape[0]), lower=True)
    return ArrowPrecision(ArrowVector(local, mean), ArrowFactor(T, cross, root), inverse)


@jax.jit(static_argnums=2)
def first_blocks(target: SumOfTerms, mean: Float[Array, " g"], num_groups: int) -> Blocks:
    """Return blocks to start from: random effects of mean zero, and the information there."""
    likelihood, effects = mixed_parts(target)
    point = PointMass(ArrowVector(jnp.zeros((effects.r, num_groups)), mean))
    hess = likelihood.expected(point).hess
    W = effects.precision_factor(mean)
    cross = jnp.zeros((mean.shape[0], effects.r, num_groups)).at[: likelihood.p].set(-hess.cross[: likelihood.p])
    return Blocks(jnp.tensordot(mean, cross, axes=1), -hess.local + (W @ W.T)[..., None], cross)


@jax.jit
def prior_site(terms: tuple[Term, ...], mean: Float[Array, " g"], precision: Float[Array, "g g"]) -> Site:
    """Return what the terms of theta_g alone contribute; the bound includes the entropy of q(theta_g)."""
    g = mean.shape[0]
    root = jnp.linalg.cholesky(precision)
    nothing = Blocks(jnp.zeros((1, 0)), jnp.zeros((1, 1, 0)), jnp.zeros((g, 1, 0)))
    q = joint_gaussian(mean, root, nothing)
    value, grad, hess = jnp.zeros(()), jnp.zeros(g), jnp.zeros((g, g))
    for term in terms:
        part = term.expected(q)
        own = slice(term.start, term.start + part.grad.shared.shape[0])
        value, grad, hess = (
            value + part.value,
            grad.at[own].add(part.grad.shared),
            hess.at[own, own].add(part.hess.shared),
        )
    entropy = 0.5 * g * (1 + jnp.log(2 * jnp.pi)) - jnp.sum(jnp.log(jnp.diagonal(root)))
    return Site(grad - hess @ mean, -hess, value + entropy)


def flatten_blocks(blocks: Blocks) -> Float[Array, "k w"]:
    """Lay the blocks out, one row per group."""
    k = blocks.linear.shape[-1]
    return jnp.concatenate([a.reshape(-1, k) for a in blocks]).T


def unflatten_blocks(rows: Float[Array, "k w"], r: int, g: int) -> Blocks:
    """Invert `flatten_blocks`."""
    k = rows.shape[0]
    h, A, B = jnp.split(rows.T, (r, r + r * r))
    return Blocks(h, A.reshape(r, r, k), B.reshape(g, r, k))
