"""From a design with several random terms to arrays: which factor is eliminated first, and where all effects lie.

The largest factor's effects are local; those of all others stand at the end of the shared coordinates, term after term,
effect after effect. For people there is one flat vector of effects: the local ones, effect after effect, then the rest.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family
from natvi.formula.design import Design
from natvi.formula.grouping.levels import TermDesign
from natvi.linalg import GroupedRows, layout_rows
from natvi.linalg.crossed.blocked import CrossPattern, cross_pattern
from natvi.linalg.crossed.rows import CrossedRows
from natvi.models.mixed.target import prior_terms
from natvi.models.regression.prior.choice import Prior
from natvi.target.mixed.crossed import CrossedTarget, TermEffects
from natvi.target.mixed.random_effects import RandomEffectsPrior, omega_positions


class Plan(NamedTuple):
    """Where the effects of every term lie.

    Attributes:
        codes: The level of the largest factor in every row.
        num_levels: Of the largest factor.
        local: For every term, its first row of the local coordinates, or None for terms of other factors.
        crossed: For every term, its first place among the effects of the smaller factors, or None.
        num_local: Effects per level of the largest factor.
        num_crossed: All effects of the smaller factors.
    """

    codes: np.ndarray
    num_levels: int
    local: tuple[int | None, ...]
    crossed: tuple[int | None, ...]
    num_local: int
    num_crossed: int

    def flat_places(self, terms: tuple[TermDesign, ...]) -> list[int]:
        """Return where each term begins in the flat vector of effects."""
        start = self.num_local * self.num_levels
        return [
            at * self.num_levels if at is not None else start + (other or 0)
            for at, other in zip(self.local, self.crossed, strict=True)
        ]


def plan_effects(terms: tuple[TermDesign, ...]) -> Plan:
    """Choose the largest factor and give every term its place."""
    largest = max(terms, key=lambda term: term.num_levels)
    local: list[int | None] = []
    crossed: list[int | None] = []
    rows = count = 0
    for term in terms:
        own = set(term.columns) == set(largest.columns)
        local.append(rows if own else None)
        crossed.append(None if own else count)
        rows, count = (rows + term.r, count) if own else (rows, count + term.r * term.num_levels)
    return Plan(largest.codes, largest.num_levels, tuple(local), tuple(crossed), rows, count)


class Built(NamedTuple):
    """A target with what is needed to come back to the order of the data.

    Attributes:
        target: The model.
        plan: Where effects lie.
        place: Where each level of the largest factor stands in the target.
    """

    target: CrossedTarget
    plan: Plan
    place: np.ndarray


def build_crossed(
    design: Design, y: np.ndarray, family: Family, prior: Prior, weight: np.ndarray | None, constant: float
) -> Built:
    """Lay the rows out by the levels of the largest factor and assemble the terms."""
    terms, plan = design.terms, plan_effects(design.terms)
    p = design.X.shape[1]
    layout = layout_rows(plan.codes, plan.num_levels)
    inside = [term for term, at in zip(terms, plan.local, strict=True) if at is not None]
    Z = np.concatenate([design.Z[:, term.first : term.stop] for term in inside], axis=1)
    coordinates, values = _touched(design, plan)
    pattern, pair = cross_pattern(layout.place_of_group[plan.codes], coordinates)
    rows = GroupedRows(
        X=jnp.asarray(layout.place(design.X.T)),
        Z=jnp.asarray(layout.place(Z.T)),
        offset=jnp.asarray(layout.place(design.offset)),
        filled=jnp.asarray(layout.place(np.ones(len(y), dtype=bool), fill=False)),
        extra=jnp.asarray(layout.extra),
        num_simple=layout.num_simple,
    )
    crossed = CrossedRows(
        rows,
        jnp.asarray(layout.place(coordinates.astype(np.int32))),
        jnp.asarray(layout.place(values)),
        jnp.asarray(layout.place(pair.astype(np.int32))),
        plan.num_crossed,
        len(pattern.level),
    )
    effects, b = term_effects(terms, plan, p + family.num_extras)
    device: CrossPattern = jax.tree.map(jnp.asarray, pattern)
    target = CrossedTarget(
        design=crossed,
        y=jnp.asarray(layout.place(y)),
        weight=None if weight is None else jnp.asarray(layout.place(weight)),
        constant=jnp.asarray(constant),
        effects=effects,
        shared=prior_terms(prior),
        pattern=device,
        family=family,
        b=b,
    )
    return Built(target, plan, layout.place_of_group)


def _touched(design: Design, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Return the places among the smaller factors' effects that each row touches `(K, N)`, and with which factor."""
    places, values = [], []
    for term, at in zip(design.terms, plan.crossed, strict=True):
        if at is not None:
            places += [at + k * term.num_levels + term.codes for k in range(term.r)]
            values += list(design.Z[:, term.first : term.stop].T)
    empty = np.zeros((0, len(design.X)))
    return (np.stack(places), np.stack(values)) if places else (empty.astype(np.int64), empty)


def term_effects(terms: tuple[TermDesign, ...], plan: Plan, start: int) -> tuple[tuple[TermEffects, ...], int]:
    """Return where the target holds each term, and how many shared coordinates come before the effects."""
    starts = start + np.cumsum([0, *(len(omega_positions(term.r, term.correlated)) for term in terms)])
    b = int(starts[-1])
    found = []
    for k, term in enumerate(terms):
        prior = RandomEffectsPrior(term.r, int(starts[k]), term.correlated)
        row, place = plan.local[k], plan.crossed[k]
        first = row if row is not None else b + (place or 0)
        found.append(TermEffects(prior, term.num_levels, first, row is not None))
    return tuple(found), b
