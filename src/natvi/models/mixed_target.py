"""From a design to arrays: the target of a mixed model and a point to start from.

Shared coordinates are ordered (beta, dispersion, omega), so that the likelihood touches one contiguous range.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg import ArrowMatrix, ArrowVector, GroupedRows, layout_rows
from natvi.models.formula import Design
from natvi.models.likelihoods import Family
from natvi.models.priors import Prior
from natvi.optimize.ascent import Natural
from natvi.target import LikelihoodRows, NormalPrior, RandomEffectsPrior, SumOfTerms
from natvi.target.likelihood_rows import PredictorMoments
from natvi.target.random_effects import omega_positions


class MixedTarget(NamedTuple):
    """The target, a point to start from, and where each group of the data stands in the target."""

    target: SumOfTerms
    start: Natural
    place_of_group: np.ndarray


def build_target(design: Design, y: np.ndarray, family: Family, prior: Prior) -> MixedTarget:
    """Lay the rows out by group and assemble the terms."""
    assert design.group_codes is not None and design.group_labels is not None
    p, r, num_groups = design.X.shape[1], design.Z.shape[1], len(design.group_labels)
    layout = layout_rows(design.group_codes, num_groups)
    rows = GroupedRows(
        X=jnp.asarray(layout.place(design.X.T)),
        Z=jnp.asarray(layout.place(design.Z.T)),
        offset=jnp.asarray(layout.place(design.offset)),
        filled=jnp.asarray(layout.place(np.ones(len(y), dtype=bool), fill=False)),
        extra=jnp.asarray(layout.extra),
        num_simple=layout.num_simple,
    )
    likelihood = LikelihoodRows(rows, jnp.asarray(layout.place(y)), family)
    effects = RandomEffectsPrior(r, p + int(family.has_dispersion))
    target = SumOfTerms((likelihood, effects), (NormalPrior(jnp.asarray(prior.mean), jnp.asarray(prior.sd)),))
    shared = _starting_values(design, y, family)
    return MixedTarget(target, _starting_point(target, jnp.asarray(shared), num_groups), layout.place_of_group)


def _starting_values(design: Design, y: np.ndarray, family: Family) -> np.ndarray:
    """Return rough (beta, dispersion, omega): least squares on the link scale, moderate random effects."""
    X, r = design.X, design.Z.shape[1]
    rough = np.asarray(family.start(jnp.asarray(y))) - design.offset
    gram = X.T @ X
    ridge = 1e-8 * np.trace(gram) / max(len(gram), 1) + 1e-300
    beta = np.linalg.solve(gram + ridge * np.eye(len(gram)), X.T @ rough)
    omega = np.zeros(r * (r + 1) // 2)
    if not family.has_dispersion:
        return np.concatenate([beta, omega])
    sd = float(np.std(rough - X @ beta)) + 1e-300
    size = np.sqrt(np.mean(design.Z**2, axis=0))
    for (row, column), position in omega_positions(r).items():
        if row == column:
            omega[position] = -np.log(0.7 * sd / max(size[row], 1e-300))
    return np.concatenate([beta, [np.log(0.7 * sd)], omega])


@jax.jit(static_argnums=2)
def _starting_point(target: SumOfTerms, shared: Float[Array, " g"], num_groups: int) -> Natural:
    """Return N(mean, S^-1) with S the expected information at the rough values, positive definite by build."""
    (likelihood, effects), (prior,) = target.grouped, target.shared
    assert isinstance(likelihood, LikelihoodRows) and isinstance(effects, RandomEffectsPrior)
    assert isinstance(prior, NormalPrior)
    design, p, r, g = likelihood.design, likelihood.p, effects.r, shared.shape[0]
    mean = ArrowVector(jnp.zeros((r, num_groups)), shared)
    eta = design.predictor(mean)
    zero = jnp.zeros_like(eta)
    disp = shared[p] if likelihood.family.has_dispersion else None
    moments = PredictorMoments(eta, zero, disp, jnp.zeros(()), zero)
    weight = jnp.where(design.filled, -likelihood.family.expected(likelihood.y, moments).d_eta_eta, 0.0)
    local, cross, corner = design.gram(weight)
    W = effects.precision_factor(shared)
    information = prior.sd**-2.0
    for (row, column), position in omega_positions(r).items():
        # E[d^2] of the prior: 2 per group for log W_kk, Var theta_l for W_lk
        amount = 2.0 if row == column else W[row, row] ** -2.0
        information = information.at[effects.start + position].add(num_groups * amount)
    if likelihood.family.has_dispersion:
        information = information.at[p].add(2.0 * jnp.sum(design.filled))
    precision = ArrowMatrix(
        local + (W @ W.T)[..., None],
        jnp.zeros((g, r, num_groups)).at[:p].set(cross),
        jnp.diag(information).at[:p, :p].add(corner),
    )
    return Natural(precision.matvec(mean), precision)
