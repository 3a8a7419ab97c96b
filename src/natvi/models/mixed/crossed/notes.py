"""What to know about crossed factors before a fit: what cannot be told apart, what is nested, what it costs."""

import os
from itertools import combinations

import numpy as np

from natvi.families.table import Family
from natvi.formula.design import Design
from natvi.formula.grouping.levels import TermDesign
from natvi.formula.grouping.nesting import Relation, count_pieces, relate
from natvi.formula.raw_columns import listing
from natvi.models.mixed.crossed.layout import plan_effects

ARRAYS = 14  # of the size of the dense corner that an ascent holds: its point, past steps, factor, covariance
LARGE = 5000  # effects of the smaller factors, from which the cost is told
PER_PAIR = 24  # bytes of two pairs of the same level


def describe_factors(design: Design, y: np.ndarray, family: Family, trials: np.ndarray | None) -> tuple[str, ...]:
    """Return notes for the summary.

    Raises:
        ValueError: If factors cannot be told from each other or from the residual, or the fit would not fit in memory.
    """
    notes = []
    if design.num_missing:
        total = design.num_missing + design.num_zero_weight + len(design.X)
        notes.append(
            f"{design.num_missing:,} of {total:,} rows left out: missing values (missing='error' refuses them)"
        )
    notes += design.notes
    if design.weights is not None:
        notes.append(f"weights: the {len(y):,} rows count as {design.weights.sum():,.6g}")
    factors = {frozenset(term.columns): term for term in design.terms}
    for term in factors.values():
        notes += _single_rows(term, y, family, trials)
    for first, second in combinations(factors.values(), 2):
        notes += _related(first, second)
    return (*notes, *_cost(design))


def _single_rows(term: TermDesign, y: np.ndarray, family: Family, trials: np.ndarray | None) -> list[str]:
    sizes = np.bincount(term.codes) if trials is None else np.bincount(term.codes, trials)
    single, unit = int(np.sum(sizes == 1)), "row" if trials is None else "trial"
    if single < len(sizes):
        return [f"{single:,} of {len(sizes):,} levels of {term.group} have a single {unit}"] if single else []
    binary = family.name == "bernoulli" or trials is not None
    if family.name == "gaussian" or binary:
        why = (
            "its effects cannot be told from the residual"
            if family.name == "gaussian"
            else "a single yes or no says nothing about the spread of its effects, only about the scale of the others"
        )
        raise ValueError(
            f"every level of {term.group!r} has a single {unit}: {why}. Check the column, or leave the term "
            f"(... | {term.group}) out."
        )
    return [f"every level of {term.group} has a single {unit}: its sd is what the family leaves over (overdispersion)"]


def _related(first: TermDesign, second: TermDesign) -> list[str]:
    found = relate(first.codes, second.codes)
    if found.same:
        raise ValueError(_same(first, second))
    if found.inside or found.around:
        inner, outer = (first, second) if found.inside else (second, first)
        if set(outer.columns) < set(inner.columns):  # written so
            return []
        return [f"{inner.group} is nested in {outer.group}: each of its levels occurs in one level of that only"]
    return _crossed(first, second, found)


def _same(first: TermDesign, second: TermDesign) -> str:
    inner, outer = (first, second) if len(first.columns) > len(second.columns) else (second, first)
    if len(outer.columns) < len(inner.columns) and set(outer.columns) < set(inner.columns):
        other = next(column for column in inner.columns if column not in outer.columns)
        name = outer.group
        return (
            f"every level of {name!r} occurs with one level of {other!r} only, so that {inner.group!r} and {name!r} "
            f"are the same factor: {name} is nested in {other}, not the other way round. Write (1 | {other}/{name}), "
            f"or (1 | {other}) + (1 | {name})."
        )
    return (
        f"{first.group!r} and {second.group!r} are the same factor up to the names of their levels: the data cannot "
        "tell their effects apart. Keep one of the two terms."
    )


def _crossed(first: TermDesign, second: TermDesign, found: Relation) -> list[str]:
    pieces = count_pieces(first.codes, second.codes)
    if pieces == 1:
        return []
    return [
        f"the levels of {first.group} and {second.group} fall into {pieces:,} pieces that no row connects: "
        "differences between pieces are known by the prior of the effects only"
    ]


def _cost(design: Design) -> list[str]:
    """Say what a large dense part costs; refuse what the machine cannot hold."""
    plan = plan_effects(design.terms)
    corner = plan.num_crossed + design.X.shape[1]
    largest = max(design.terms, key=lambda term: term.num_levels)
    others = [term for term in design.terms if set(term.columns) != set(largest.columns)]
    size = 8.0 * ARRAYS * corner**2 + PER_PAIR * _pairs_of_pairs(largest, others)
    room = _memory()
    names = listing(dict.fromkeys(term.group for term in others))
    words = (
        f"{plan.num_crossed:,} effects of {names} are worked on together as a dense matrix: about {size / 2**30:,.1f} "
        f"GiB and {corner**3 / 3e10:,.0f} s a step"
    )
    if size > 0.8 * room:
        raise ValueError(
            f"the model would need about {size / 2**30:,.0f} GiB, and this machine has {room / 2**30:,.0f}: {words}. "
            f"Keep the factor with the most levels, {largest.group!r}, and give the others fewer levels (merge rare "
            "ones), take a sample of the rows, or enter one of them as a fixed effect of its group means."
        )
    return [words] if plan.num_crossed > LARGE else []


def _pairs_of_pairs(largest: TermDesign, others: list[TermDesign]) -> float:
    """Return about how many two effects of smaller factors meet in one level of the largest."""
    met = np.zeros(largest.num_levels)
    for term in others:
        pairs = np.unique(largest.codes * np.int64(term.num_levels) + term.codes) // term.num_levels
        met += term.r * np.bincount(pairs, minlength=largest.num_levels)
    return float(np.sum(met * (met - 1) / 2))


def _memory() -> float:
    """Return the bytes of memory of this machine, or of the limit this process runs under."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) if hasattr(os, "sysconf") else 16e9
    return total
