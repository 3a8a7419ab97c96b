"""Where the ascent of a crossed model starts: rough values, and the information there."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.families.family import concave
from natvi.families.table import Family
from natvi.formula.design import Design
from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedMatrix
from natvi.models.mixed.start import StartRows, starting_values, within_prior
from natvi.models.regression.prior.choice import Prior
from natvi.optimize.structured.blocked_system import BlockedNatural
from natvi.run.compiled_code import quick_jit
from natvi.target.mixed.crossed import CrossedTarget
from natvi.target.mixed.random_effects import omega_positions
from natvi.target.point_mass import PointMass


def rough_values(
    design: Design, y: np.ndarray, family: Family, prior: Prior, weight: np.ndarray | None
) -> tuple[np.ndarray, float]:
    """Return rough (beta, dispersion, omega of every term) and the information about the dispersion.

    What the fixed effects leave is shared out in equal parts of variance among the terms.
    """
    rows = StartRows(design.X, design.Z, design.offset, correlated=False)
    found, information = starting_values(rows, y, family, weight)
    start = design.X.shape[1] + family.num_extras
    shared = [found[:start]]
    for term in design.terms:
        at = omega_positions(term.r, term.correlated)
        omega = np.zeros(len(at))
        for k in range(term.r):
            omega[at[k, k]] = found[start + term.first + k] + 0.5 * np.log(len(design.terms))
        shared.append(omega)
    return within_prior(np.concatenate(shared), prior.scales), information


@quick_jit
def crossed_start(target: CrossedTarget, shared: Float[Array, " b"], information: Float[Array, ""]) -> BlockedNatural:
    """Return N(mean, S^-1) with S the information at the rough values and effects zero, positive definite by build."""
    p = target.p
    r, n, m = target.num_local, target.num_levels, target.design.num_coordinates
    mean = ArrowVector(jnp.zeros((r, n)), jnp.concatenate([shared, jnp.zeros(m)]))
    start = replace(target, family=concave(target.family))
    rows: BlockedMatrix = jax.tree.map(jnp.negative, start.expected_rows(PointMass(mean)).hess)
    A, B, pairs, S = rows
    if target.family.has_dispersion:  # its information is known roughly, and may be anything at this point
        own = slice(p, p + target.family.num_extras)
        B, S = B.at[own].set(0.0), S.at[own].set(0.0).at[:, own].set(0.0)
    for term in target.effects:
        prior, levels = term.prior, term.num_levels
        W = prior.precision_factor(shared)
        precision = (W @ W.T)[..., None]
        if term.largest:
            A = A.at[term.own, term.own].add(precision)
        else:
            at = term.first + jnp.arange(prior.r * levels).reshape(prior.r, levels)
            S = S.at[at[:, None], at[None]].add(jnp.broadcast_to(precision, (prior.r, prior.r, levels)))
        for (row, column), position in prior.positions.items():
            # E[d^2] of the prior: 2 per level for log W_kk, Var theta_l for W_lk
            amount = 2.0 if row == column else W[row, row] ** -2.0
            at_omega = prior.start + position
            S = S.at[at_omega, at_omega].add(levels * amount)
    point = PointMass(ArrowVector(jnp.zeros((1, 0)), shared))
    for alone in target.shared:
        own = -jnp.diagonal(alone.expected(point).hess.shared)
        places = alone.start + jnp.arange(own.shape[0])
        S = S.at[places, places].add(jnp.maximum(own, 0.0))
    if target.family.has_dispersion:
        own = p + jnp.arange(target.family.num_extras)
        S = S.at[own, own].add(information)
    precision = BlockedMatrix(A, B, pairs, S)
    return BlockedNatural(target.pattern.matvec(precision, mean), precision)
