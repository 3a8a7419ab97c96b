"""Batches of rows from columns on disk, in the shapes that the compiled ascent asks for, and the target around them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family
from natvi.formula.design import Design
from natvi.linalg.crossed.blocked import pattern_of_keys
from natvi.linalg.crossed.loose_rows import LooseRows
from natvi.linalg.crossed.rows import CrossedRows
from natvi.models.mixed.crossed.batches.spool import Spooled
from natvi.models.mixed.crossed.layout import Built, Plan, plan_effects, term_effects
from natvi.models.mixed.target import prior_terms
from natvi.models.regression.prior.choice import Prior
from natvi.target.mixed.crossed_batches import BatchedCrossedTarget, RowBatch


class DiskRows:
    """Reads batches: consecutive rows, the last batch filled up with rows of weight zero."""

    def __init__(self, rows: Spooled, plan: Plan, size: int) -> None:
        """Find the pairs of levels that meet, batch after batch."""
        self.design, self.y, self.weight, self.plan, self.size = rows.design, rows.y, rows.weight, plan, size
        terms = rows.design.terms
        self._inside = [k for term, at in zip(terms, plan.local, strict=True) if at is not None for k in _columns(term)]
        self._width = max(plan.num_crossed, 1)
        self.num_batches = -(-len(self.y) // size)
        keys = np.zeros(0, dtype=np.int64)
        for k in range(self.num_batches):
            keys = np.union1d(keys, self._keys(*self._touched(self._own(k))[:2]))
        self._known = keys
        self.pattern = pattern_of_keys(keys, self._width)

    def read(self, number: Any) -> RowBatch:
        """Return a batch."""
        own = self._own(int(number))
        design, count = self.design, own.stop - own.start
        level, coordinate, value = self._touched(own)
        pair = np.searchsorted(self._known, self._keys(level, coordinate))
        weight = np.ones(count) if self.weight is None else self.weight[own]
        parts = RowBatch(
            X=design.X[own].T,
            Z=design.Z[own][:, self._inside].T,
            offset=design.offset[own],
            y=self.y[own],
            weight=weight,
            level=level,
            coordinate=coordinate,
            value=value,
            pair=pair,
        )
        return RowBatch(*(in_halves(self._filled(part, like)) for part, like in zip(parts, self.like, strict=True)))

    @property
    def like(self) -> RowBatch:
        """Shapes of a batch."""
        p, r = self.design.X.shape[1], len(self._inside)
        K = sum(term.r for term, at in zip(self.design.terms, self.plan.crossed, strict=True) if at is not None)
        cells = (1, self.size)

        def numbers(*shape: int) -> Any:
            return jax.ShapeDtypeStruct(shape, np.float64)

        def places(*shape: int) -> Any:
            return jax.ShapeDtypeStruct(shape, np.int32)

        rows = numbers(p, *cells), numbers(r, *cells), numbers(*cells), numbers(*cells), numbers(*cells)
        return RowBatch(*rows, places(self.size), places(K, *cells), numbers(K, *cells), places(K, *cells))

    def _own(self, number: int) -> slice:
        return slice(number * self.size, min((number + 1) * self.size, len(self.y)))

    def _touched(self, own: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return every row's level, the effects of smaller factors that it touches `(K, N)`, and with which factor."""
        places, values = [], []
        for term, at in zip(self.design.terms, self.plan.crossed, strict=True):
            if at is not None:
                places += [at + k * term.num_levels + term.codes[own] for k in range(term.r)]
                values += list(self.design.Z[own, term.first : term.stop].T)
        level = np.asarray(self.plan.codes[own])
        if not places:
            return level, np.zeros((0, len(level)), dtype=np.int64), np.zeros((0, len(level)))
        return level, np.stack(places), np.stack(values)

    def _keys(self, level: np.ndarray, coordinate: np.ndarray) -> np.ndarray:
        return level.astype(np.int64) * self._width + coordinate

    def _filled(self, part: Any, like: Any) -> np.ndarray:
        found = np.zeros(like.shape, like.dtype)
        found.reshape(*part.shape[:-1], self.size)[..., : part.shape[-1]] = part
        return found


def in_halves(part: np.ndarray) -> np.ndarray:
    """Return doubles as pairs of 32-bit numbers: calls to the host make single precision of doubles."""
    return part.view(np.int32).reshape(*part.shape, 2) if part.dtype == np.float64 else part


def _columns(term: Any) -> range:
    return range(term.first, term.stop)


def build_batched(rows: Spooled, family: Family, prior: Prior, size: int) -> Built:
    """Return the target whose rows are read in batches of a size."""
    design: Design = rows.design
    plan, p = plan_effects(design.terms), design.X.shape[1]
    source = DiskRows(rows, plan, size)
    r = plan.num_local
    nothing = jnp.zeros((1, 0))
    loose = LooseRows(
        jnp.zeros((p, 1, 0)),
        jnp.zeros((r, 1, 0)),
        nothing,
        nothing > 0,
        jnp.zeros(0, jnp.int32),
        0,
        num_groups=plan.num_levels,
    )
    none = jnp.zeros((source.like.value.shape[0], 1, 0))
    empty = CrossedRows(
        loose, none.astype(jnp.int32), none, none.astype(jnp.int32), plan.num_crossed, len(source.pattern.level)
    )
    effects, b = term_effects(design.terms, plan, p + family.num_extras)
    target = BatchedCrossedTarget(
        design=empty,
        y=nothing,
        weight=nothing,
        constant=jnp.zeros(()),
        effects=effects,
        shared=prior_terms(prior),
        pattern=jax.tree.map(jnp.asarray, source.pattern),
        family=family,
        b=b,
        read=source.read,
        num_batches=source.num_batches,
        like=source.like,
    )
    return Built(target, plan, np.arange(plan.num_levels))
