"""The random effects integrated out: log p(y, theta_g) of a mixed model by adaptive quadrature.

For each group the mode m of f_i(theta_i) = log p(y_i, theta_i | theta_g) is found by Newton's method, with H = root
root' the negative Hessian there. Random effects that are wide beside the link have an edge, like half a normal
density: Gauss and Hermite's nodes v therefore lie at theta_i = m + root^-T s(v), each coordinate stretched towards its
long side,

    s(v) = v + b (sqrt(1 + v^2) - 1),    b = f_i(one sd up) - f_i(one sd down),

which takes the third derivative out of f_i + log s'(v): nine nodes are then as good as 21. Gaussian rows have the 2 r
points at which a quadratic function has its expectation. The gradient in theta_g is an expectation over the same nodes
(Fisher's identity),

    d/d theta_g log p(y_i | theta_g) = E[d/d theta_g log p(y_i, theta_i | theta_g) | y_i, theta_g],

so that one loop gives both.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.families.rows import take_extras
from natvi.linalg import ArrowVector, small_blocks
from natvi.target.likelihood_rows import LikelihoodRows
from natvi.target.mixed.modes import CLOSE, CLOSER, RowLikelihood, group_modes
from natvi.target.mixed.random_effects import RandomEffectsPrior
from natvi.target.term import SumOfTerms

NODES_PER_DIMENSION = {1: 9, 2: 9, 3: 5}  # for all but Gaussian rows
MOST_STRETCHED = 0.85  # |b|; s is one-to-one below 1


class Nodes(NamedTuple):
    """Nodes for the integral over R^r of a function, not of its product with a density; the last may be filling.

    Attributes:
        z: In sds from the mode.
        log_weight: Logarithms of the weights.
        count: How many there are.
    """

    z: Float[Array, "m r"] | np.ndarray
    log_weight: Float[Array, " m"] | np.ndarray
    count: Array | np.ndarray | int


def can_integrate(target: SumOfTerms) -> bool:
    """Whether the target is a mixed model with few enough random effects per group; any number for Gaussian rows."""
    if tuple(type(term) for term in target.grouped) != (LikelihoodRows, RandomEffectsPrior):
        return False
    likelihood, effects = mixed_parts(target)
    return is_gaussian(likelihood) or effects.r in NODES_PER_DIMENSION


def is_gaussian(likelihood: LikelihoodRows) -> bool:
    """Whether f_i is quadratic in theta_i."""
    return bool(getattr(likelihood.family, "quadratic", False))


def default_nodes(target: SumOfTerms, times: int = 1) -> Nodes:
    """Return the nodes for a model, or those of a rule with twice as many per random effect; arrays of one size."""
    likelihood, effects = mixed_parts(target)
    if is_gaussian(likelihood):
        return _sigma_points(effects.r)
    usual = NODES_PER_DIMENSION[effects.r]
    z, log_weight = product_nodes(effects.r, usual * times)
    room = (2 * usual) ** effects.r - len(z)
    return Nodes(np.pad(z, ((0, room), (0, 0))), np.pad(log_weight, (0, room)), np.asarray(len(z)))


def product_nodes(r: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `(nodes^r, r)` and log weights of the product of Gauss-Hermite rules."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grids = np.meshgrid(*[x] * r, indexing="ij")
    z = np.stack([grid.ravel() for grid in grids], axis=1)
    logs = np.meshgrid(*[np.log(w) + 0.5 * x**2] * r, indexing="ij")
    return z, np.sum([grid.ravel() for grid in logs], axis=0)


def _sigma_points(r: int) -> Nodes:
    """Return +-sqrt(r) e_k with equal weights: exact for e^{-|z|^2/2} times a quadratic function."""
    z = np.sqrt(r) * np.concatenate([np.eye(r), -np.eye(r)])
    log_weight = 0.5 * r * (1.0 + np.log(2 * np.pi)) - np.log(2 * r)
    return Nodes(z, np.full(2 * r, log_weight), np.asarray(2 * r))


def marginal_log_density(
    target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"], nodes: int | None = None
) -> Float[Array, ""]:
    """Return log p(y, theta_g), the random effects integrated out; it can be differentiated once in theta_g.

    Args:
        target: A mixed model.
        shared: theta_g.
        near: A guess of the modes of the random effects, e.g. their approximate means given theta_g.
        nodes: Of the quadrature, per random effect of a group; `default_nodes` if not given.

    Returns:
        The logarithm of the joint density of data and shared coordinates.
    """
    rule = default_nodes(target)
    if nodes is not None:
        z, log_weight = product_nodes(mixed_parts(target)[1].r, nodes)
        rule = Nodes(z, log_weight, len(z))
    value, slope = jax.lax.stop_gradient(marginal_score(target, jax.lax.stop_gradient(shared), near, rule))
    return value + slope @ (shared - jax.lax.stop_gradient(shared))


def marginal_value(
    target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"], nodes: Nodes
) -> Float[Array, ""]:
    """Return log p(y, theta_g)."""
    groups = _integrals(target, shared, near, nodes, False)[0]
    return jnp.sum(mixed_parts(target)[1].where_real(groups, 0.0)) + _alone(target, shared)


def marginal_score(
    target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"], nodes: Nodes
) -> tuple[Float[Array, ""], Float[Array, " g"]]:
    """Return log p(y, theta_g) and its gradient."""
    likelihood, effects = mixed_parts(target)
    groups, sums = _integrals(target, shared, near, nodes, True)
    assert sums.slope is not None and sums.outer is not None
    share = effects.where_real(1.0 / sums.total, 0.0)
    score = jnp.zeros_like(shared)
    # E psi' of every row
    slope = sums.slope * likelihood.design.per_chunk(share)
    score = score.at[: likelihood.p].add(jnp.tensordot(likelihood.design.X, slope, axes=2))
    if sums.disp is not None:
        own = slice(likelihood.p, likelihood.p + likelihood.family.num_extras)
        score = score.at[own].add(jnp.sum(effects.where_real(sums.disp * share, 0.0), axis=-1))
    # E theta theta' of all groups together, for n log |W| - tr(W W' E theta theta') / 2
    outer = jnp.sum(effects.where_real(sums.outer * share, 0.0), axis=-1)

    def rest(shared: Float[Array, " g"]) -> Float[Array, ""]:
        W = effects.precision_factor(shared)
        spread = effects.num_real(near.shape[1]) * jnp.sum(jnp.log(jnp.diagonal(W))) - 0.5 * jnp.sum((W @ W.T) * outer)
        return spread + _alone(target, shared)

    return jnp.sum(effects.where_real(groups, 0.0)) + _alone(target, shared), score + jax.grad(rest)(shared)


def group_log_likelihoods(
    target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"]
) -> Float[Array, " n"]:
    """Return log p(y_i | theta_g) of every group, its random effects integrated out, but for the rows' constants."""
    groups, _ = _integrals(target, shared, near, default_nodes(target), False)
    likelihood, _ = mixed_parts(target)
    disp = take_extras(likelihood.family, shared, likelihood.p)
    return groups + likelihood.design.per_group(jnp.sum(likelihood.row_normalisers(disp), axis=0))


def _alone(target: SumOfTerms, shared: Float[Array, " g"]) -> Float[Array, ""]:
    """Return what needs no integral: the prior of theta_g and the rows' normaliser."""
    likelihood, effects = mixed_parts(target)
    disp = take_extras(likelihood.family, shared, likelihood.p)
    nobody = jnp.zeros((effects.r, 1))
    return likelihood.normaliser(disp) + sum((t.value(ArrowVector(nobody, shared)) for t in target.shared), 0.0)


class _Sums(NamedTuple):
    """Sums over the nodes, in units of the density at the mode; the last three only for the gradient."""

    seen: Float[Array, "k n"]  # f_i at the mode and around it; in the last row whatever came last
    total: Float[Array, " n"]
    slope: Float[Array, "c K"] | None = None  # of the rows' log p
    disp: Float[Array, "q n"] | None = None
    outer: Float[Array, "r r n"] | None = None  # theta theta'


def _integrals(
    target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"], nodes: Nodes, with_slopes: bool
) -> tuple[Float[Array, " n"], _Sums]:
    """Return log of the integral of every group, and the sums behind it."""
    likelihood, effects = mixed_parts(target)
    r, rows, W = effects.r, RowLikelihood(likelihood, shared), effects.precision_factor(shared)
    # differences of gradients are taken: nodes may not jump
    mode, root = group_modes(rows, W @ W.T, near, CLOSER if with_slopes else CLOSE)
    # one loop, so that there is one copy of the rows: first it looks at the mode and an sd each way along every axis
    ways = np.concatenate([np.zeros((1, r)), np.eye(r), -np.eye(r)])
    first = len(ways)
    z = jnp.concatenate([ways, jnp.asarray(nodes.z)])
    weight = jnp.concatenate([jnp.zeros(first), jnp.exp(jnp.asarray(nodes.log_weight))])
    is_edged = not is_gaussian(likelihood)

    def add(k: Array, sums: _Sums) -> _Sums:
        seen, v, far = sums.seen, z[k][:, None], jnp.sqrt(1.0 + z[k] ** 2)[:, None]
        b = jnp.where(k < first, 0.0, _stretch(seen[1 : r + 1] - seen[r + 1 : first])) if is_edged else 0.0
        theta = mode + small_blocks.solve_upper(root, v + b * (far - 1.0) + jnp.zeros_like(mode))
        eta = rows.predictor(theta)
        by_row, slope = rows.slopes(eta) if with_slopes else (rows.log_density(eta), None)
        value = rows.total(by_row) - 0.5 * jnp.sum((W.T @ theta) ** 2, axis=0)
        # s'(v) = 1 + b v / sqrt(1 + v^2);  f is largest at the mode, so that nothing overflows
        share = weight[k] * jnp.prod(1.0 + b * v / far, axis=0) * jnp.exp(value - seen[0])
        share = jnp.where(k < first, 0.0, share)
        more = _Sums(jax.lax.dynamic_update_index_in_dim(seen, value, jnp.minimum(k, first), 0), sums.total + share)
        if slope is None or sums.slope is None or sums.outer is None:
            return more
        assert sums.slope is not None and sums.outer is not None
        return more._replace(
            slope=sums.slope + likelihood.design.per_chunk(share) * slope,
            disp=None if sums.disp is None else sums.disp + share * _disp_slopes(rows, eta),
            outer=sums.outer + share * theta[:, None] * theta[None],
        )

    nothing = jnp.zeros(near.shape[1])
    start = _Sums(jnp.zeros((first + 1, near.shape[1])), nothing)
    if with_slopes:
        q = likelihood.family.num_extras
        disp = jnp.zeros((q, near.shape[1])) if q else None
        start = _Sums(*start[:2], jnp.zeros_like(likelihood.y), disp, jnp.zeros((r, r, near.shape[1])))
    sums = jax.lax.fori_loop(0, first + nodes.count, add, start)
    # |d theta / d s|, and the norm of N(0, (W W')^-1)
    log_volume = jnp.sum(jnp.log(jnp.stack([root[k, k] for k in range(r)])), axis=0)
    norm = jnp.sum(jnp.log(jnp.diagonal(W))) - 0.5 * r * jnp.log(2 * jnp.pi)
    return sums.seen[0] + jnp.log(sums.total) - log_volume + norm, sums


def _stretch(b: Float[Array, "r n"]) -> Float[Array, "r n"]:
    """Return b within its limits; zero where the density is not finite."""
    return jnp.where(jnp.isfinite(b), jnp.clip(b, -MOST_STRETCHED, MOST_STRETCHED), 0.0)


def _disp_slopes(rows: RowLikelihood, eta: Float[Array, "c K"]) -> Float[Array, "q n"]:
    """Return the derivatives of every group's log p, less its normaliser, in the coordinates of the dispersion."""
    assert rows.disp is not None
    one = rows.disp.ndim == 0
    moves = [jnp.ones_like(rows.disp)] if one else list(jnp.eye(rows.disp.shape[0]))
    parts = [jax.jvp(lambda disp: rows.term.row_kernels(eta, disp), (rows.disp,), (move,))[1] for move in moves]
    return jnp.stack([rows.total(part) for part in parts])


def mixed_parts(target: SumOfTerms) -> tuple[LikelihoodRows, RandomEffectsPrior]:
    """Return the rows and the random effects of a mixed model."""
    likelihood, effects = target.grouped
    assert isinstance(likelihood, LikelihoodRows) and isinstance(effects, RandomEffectsPrior)
    return likelihood, effects
