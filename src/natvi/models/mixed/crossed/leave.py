"""Cross-validation of whole levels of a crossed factor: their own effects integrated out, those of others given.

What leaving a block of rows out asks for is p(block | all else). Effects that only the block knows about, those of
levels that lie inside it, are integrated out for every draw of the rest; effects of levels that other blocks share are
part of the draw, as coefficients are. Given draws of its own effects a block would predict itself too well.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.formula.grouping.nesting import relate
from natvi.linalg import GroupedRows, layout_rows
from natvi.models.mixed.crossed.components import FittedTerm
from natvi.models.regression.criticism import Drawn
from natvi.models.regression.questions.leave_groups import sum_blocks
from natvi.models.regression.rows import Rows
from natvi.target import LikelihoodRows, RandomEffectsPrior, SumOfTerms
from natvi.target.mixed.marginal import can_integrate, group_log_likelihoods, mixed_parts
from natvi.x64 import float64

AT_ONCE = 8  # draws per compiled call


class Inside(NamedTuple):
    """The terms of the one factor whose levels lie inside blocks: the level of every row, and the terms."""

    codes: np.ndarray
    terms: tuple[FittedTerm, ...]


def find_inside(terms: tuple[FittedTerm, ...], rows: Rows, codes: np.ndarray) -> Inside | None:
    """Return the factor whose levels lie inside blocks, or None.

    Raises:
        ValueError: If there are several, or if its effects cannot be integrated out.
    """
    assert rows.codes is not None
    found: dict[tuple[str, ...], list[int]] = {}
    for k, term in enumerate(terms):
        if relate(rows.codes[:, k], codes).inside:
            found.setdefault(term.columns, []).append(k)
    if not found:
        return None
    if len(found) > 1:
        names = ", ".join(dict.fromkeys(terms[at].group for own in found.values() for at in own))
        raise ValueError(
            f"the groups hold whole levels of several factors, {names}, whose effects cannot be integrated out "
            "together. Leave levels of the innermost factor out, or leave groups out by hand: update(data=...) without "
            "one, then log_likelihood(data=...)."
        )
    at = next(iter(found.values()))
    own = tuple(terms[k] for k in at)
    if len(own) > 1 and any(term.correlated and term.r > 1 for term in own):
        raise ValueError(
            f"effects of {own[0].group} stand in several terms, some of them correlated, and cannot be integrated out "
            "together. Put them into one term, or leave groups out by hand with update(data=...)."
        )
    return Inside(rows.codes[:, at[0]], own)


def left_out_values(
    terms: tuple[FittedTerm, ...], rows: Rows, drawn: Drawn, codes: np.ndarray, num_blocks: int
) -> Float[np.ndarray, "s b"] | None:
    """Return the log-likelihood of every block under every draw of what it shares with others; None where that is all.

    Args:
        terms: Of the model.
        rows: With a level of every term.
        drawn: Draws, whose covariates hold the place of every effect.
        codes: The block of every row.
        num_blocks: How many there are.
    """
    inside = find_inside(terms, rows, codes)
    if inside is None:
        return None
    labels, level = np.unique(inside.codes, return_inverse=True)
    block = np.zeros(len(labels), dtype=int)
    block[level] = codes
    each = _level_values(inside.terms, rows, drawn, level, len(labels))
    if rows.constants is not None:
        each += np.bincount(level, rows.constants, len(labels))
    return sum_blocks(each, block, num_blocks)


def _level_values(
    own: tuple[FittedTerm, ...], rows: Rows, drawn: Drawn, level: np.ndarray, num_levels: int
) -> Float[np.ndarray, "s n"]:
    """Return log p(rows of a level | draw) for every draw and level."""
    assert rows.Z is not None
    layout, p = layout_rows(level, num_levels, fill_up=True), rows.X.shape[1]
    columns = np.concatenate([np.arange(rows.Z.shape[1])[term.columns_of_Z] for term in own])
    others = rows.Z.copy()
    others[:, columns] = 0.0
    disp = drawn.family.num_extras
    omega = np.concatenate([np.arange(term.omega, term.omega + term.num_omega) for term in own])
    shared = np.concatenate([drawn.shared[:, p : p + disp], drawn.shared[:, omega]], axis=1)
    correlated = own[0].correlated if len(own) == 1 else False
    with float64():
        Z, y = jnp.asarray(layout.place(rows.Z[:, columns].T)), jnp.asarray(layout.place(rows.y))
        filled = jnp.asarray(layout.place(np.ones(len(level), dtype=bool), fill=False))
        weight = None if rows.weight is None else jnp.asarray(layout.place(rows.weight))
        nothing = jnp.zeros((0, *y.shape))
        design = GroupedRows(nothing, Z, jnp.zeros_like(y), filled, jnp.asarray(layout.extra), layout.num_simple)
        likelihood = LikelihoodRows(design, y, drawn.family, weight=weight)
        target = SumOfTerms((likelihood, RandomEffectsPrior(len(columns), disp, correlated)), ())
        if not can_integrate(target):
            raise ValueError(
                f"{len(columns)} effects of a level of {own[0].group} cannot be integrated out; up to 3 can. Leave "
                "groups out by hand: update(data=...) without one, then log_likelihood(data=...)."
            )
        near, parts = jnp.zeros((len(columns), layout.num_places)), []
        known = drawn.covariates._replace(Z=others)
        for at in range(0, len(shared), AT_ONCE):
            draws = np.minimum(np.arange(at, at + AT_ONCE), len(shared) - 1)
            eta = known.predictors(drawn.shared[draws], None if drawn.local is None else drawn.local[draws])
            parts.append(np.asarray(_values(target, jnp.asarray(shared[draws]), jnp.asarray(layout.place(eta)), near)))
    return np.concatenate(parts)[: len(shared)][:, layout.place_of_group]


@jax.jit
def _values(
    target: SumOfTerms, shared: Float[Array, "s g"], offset: Float[Array, "s c C"], near: Float[Array, "r n"]
) -> Float[Array, "s n"]:
    likelihood, effects = mixed_parts(target)

    def one(point: Float[Array, " g"], known: Float[Array, "c C"]) -> Float[Array, " n"]:
        rows = replace(likelihood, design=replace(likelihood.design, offset=known))
        return group_log_likelihoods(SumOfTerms((rows, effects), ()), point, near)

    return jax.vmap(one)(shared, offset)
