"""What a fit by batches keeps between visits, and what one visit does to it."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family
from natvi.hosts.collect import checked, collect, is_first, of_first, total
from natvi.linalg.grouped_rows import chunk_size
from natvi.models.mixed.batches.rows import batch_target
from natvi.models.mixed.start import StartRows, compiled_starting_point, starting_values, within_prior
from natvi.models.mixed.target import prior_terms
from natvi.models.regression.names import extra_names
from natvi.models.regression.prior.choice import Prior, choose_prior
from natvi.models.regression.prior.data import PriorData
from natvi.run import climb_groups
from natvi.run.batches.group_batches import GroupBatch, GroupSource
from natvi.run.batches.group_steps import (
    Site,
    first_blocks,
    flatten_blocks,
    prior_site,
    solve_batch,
    unflatten_blocks,
)
from natvi.run.batches.group_store import GroupStore
from natvi.run.hosts import Hosts
from natvi.target import SumOfTerms
from natvi.target.mixed.random_effects import omega_positions
from natvi.x64 import to_host

FIRST_STEPS, LATER_STEPS, LAST_STEPS = 30, 3, 30  # evaluations of a batch: first visit, later ones, the last pass
SMALL_GAIN = 1e-4  # nats per batch
MAX_HALVINGS = 30


class BatchNames(NamedTuple):
    """Names of fixed effects, random effects and grouping column, and whether the random effects correlate."""

    fixed: tuple[str, ...]
    random: tuple[str, ...]
    group: str = "group"
    correlated: bool = True

    def shared(self, family: Family) -> tuple[str, ...]:
        """Return the names of the shared coordinates."""
        names = extra_names(family, self.fixed)
        own = [extra._replace(name=name).coordinate for name, extra in zip(names, family.extras, strict=True)]
        omega = [
            f"log W({self.random[row]})" if row == column else f"W({self.random[row]},{self.random[column]})"
            for row, column in omega_positions(len(self.random), self.correlated)
        ]
        return (*self.fixed, *own, *omega)


class BatchState(NamedTuple):
    """The Gaussian of the shared coordinates, every batch's contribution to it, and the groups' blocks.

    Attributes:
        mean: Of the shared coordinates.
        precision: Of the shared coordinates.
        sites: Contribution of every batch visited, by its number.
        sizes: Number of groups of every batch visited.
        typical: What a group not yet visited contributes.
        trace: The bound after each epoch.
        blocks: The groups' blocks, one row each, or None.
    """

    mean: np.ndarray
    precision: np.ndarray
    sites: dict[int, Site]
    sizes: dict[int, int]
    typical: Site
    trace: tuple[float, ...]
    blocks: np.ndarray | None


class BatchWorker:
    """Visits batches; `state` is all that changes."""

    def __init__(
        self, family: Family, prior: Prior, names: BatchNames, cells: int, num_groups: int, state: BatchState
    ) -> None:
        """Bind the model and what is known so far."""
        self.family, self.prior, self.names = family, prior, names
        # what is kept changes in place: a visit costs nothing that grows with the data
        self.state = state._replace(sites=dict(state.sites), sizes=dict(state.sizes))
        self._cells, self._num_groups = cells, num_groups
        self._terms = prior_terms(prior)
        self._store = GroupStore(0, 0, "recompute")
        kept = state.blocks
        self._store.rows = kept if kept is None or isinstance(kept, np.memmap) else np.array(kept)
        self.state = self.state._replace(blocks=self._store.rows)
        self._total = _add_up(state, num_groups)

    def visit(self, batch: GroupBatch | None) -> bool:
        """Bring a batch's blocks to their optimum and replace its contribution; False if nothing finite came out.

        Where several processes fit together each visits a batch of its own at the same time, or None when it has no
        more, and the shared block moves once for all of them.
        """
        site = new = old = jax.tree.map(np.zeros_like, self.state.typical)
        if batch is not None:
            size = len(batch.groups)
            site = self._solve(batch, FIRST_STEPS if batch.number not in self.state.sites else LATER_STEPS)
            new, old = site, self.state.sites.get(batch.number)
            if old is None:
                old = jax.tree.map(lambda a: size * a, self.state.typical)
        new, old = total((new, old))
        if not all(np.all(np.isfinite(part)) for part in new):
            return False
        self._total = jax.tree.map(lambda t, new, gone: t + new - gone, self._total, new, old)
        if batch is not None:
            self.state.sites[batch.number], self.state.sizes[batch.number] = site, len(batch.groups)
        return self._move()

    def _solve(self, batch: GroupBatch, max_steps: int) -> Site:
        target = batch_target(_inside(batch, self.prior), self.family, self._cells, self.names.correlated)
        mean, precision = jnp.asarray(self.state.mean), jnp.asarray(self.state.precision)
        kept = self._store.read(batch.groups)
        if kept is None:
            start, max_steps = first_blocks(target, mean, len(batch.groups)), max(max_steps, FIRST_STEPS)
        else:
            start = unflatten_blocks(jnp.asarray(kept), batch.Z.shape[1], len(self.state.mean))
        blocks, site = solve_batch(target, mean, precision, start, jnp.asarray(max_steps), jnp.asarray(SMALL_GAIN))
        self._store.write(batch.groups, np.asarray(_flatten(blocks)))
        return to_host(site)

    def _move(self) -> bool:
        """Move the shared block to the sum of all contributions, as far as its precision stays positive definite."""
        state = self.state
        own = to_host(prior_site(self._terms, jnp.asarray(state.mean), jnp.asarray(state.precision)))
        P, p = self._total.precision + own.precision, self._total.linear + own.linear
        linear, step = state.precision @ state.mean, 1.0
        for _ in range(MAX_HALVINGS):
            precision = state.precision + step * (0.5 * (P + P.T) - state.precision)
            if _is_positive(precision):
                mean = np.linalg.solve(precision, linear + step * (p - linear))
                mean, precision = of_first((mean, precision))
                self.state = state._replace(mean=mean, precision=precision)
                return bool(np.all(np.isfinite(mean)))
            step *= 0.5
        return False

    def bound(self) -> float:
        """Return the bound with every batch as it was at its last visit, scaled up if some were not visited yet."""
        own = prior_site(self._terms, jnp.asarray(self.state.mean), jnp.asarray(self.state.precision))
        bounds = np.float64(sum(float(site.bound) for site in self.state.sites.values()))
        seen, found = total((np.float64(sum(self.state.sizes.values())), bounds))
        return float(own.bound) + float(found) * (self._num_groups / float(seen) if seen else np.nan)

    def end_epoch(self) -> None:
        """Note the bound, and add the contributions up afresh, so that rounding errors do not pile up."""
        self._total = _add_up(self.state, self._num_groups)
        self.state = self.state._replace(trace=(*self.state.trace, self.bound()))

    def exact_bound(self, source: GroupSource) -> float:
        """Return the bound with all groups at their optimum for the shared block as it is: one more pass."""
        epoch = len(self.state.trace)
        bounds = [float(self._solve(batch, LAST_STEPS).bound) for batch in source.read(epoch)]
        own = prior_site(self._terms, jnp.asarray(self.state.mean), jnp.asarray(self.state.precision))
        return float(own.bound) + float(total(np.float64(sum(bounds))))


def _inside(batch: GroupBatch, prior: Prior) -> GroupBatch:
    """Return a batch with its columns in the coordinates of the prior."""
    return batch._replace(X=prior.coordinates.columns(batch.X), Z=prior.coordinates.random_columns(batch.Z))


_flatten = jax.jit(flatten_blocks)


def make_worker(
    source: GroupSource,
    family: Family,
    prior: Any,
    names: BatchNames | None,
    blocks: str | Path,
    state: BatchState | None,
) -> BatchWorker:
    """Choose the prior and fit the first batch by itself, which stands for all until they are seen."""
    pilot = checked(lambda: next(source.read(0)))
    names = names or _own_names(source) or _numbered(pilot)
    num_groups = sum(collect(source.num_groups))
    # one process chooses for all, by its own first batch
    chosen = collect(_choose(prior, family, pilot, names, source) if is_first() else None)[0]
    assert chosen is not None
    pilot = _inside(pilot, chosen)
    cells = chunk_size(np.bincount(pilot.codes))
    if state is None:
        state = collect(_pilot_state(pilot, family, chosen, names, cells, num_groups) if is_first() else None)[0]
        assert state is not None
        width = len(names.random) * (1 + len(names.random) + len(state.mean))
        state = state._replace(blocks=GroupStore(source.num_groups, width, blocks).rows)
    return BatchWorker(family, chosen, names, cells, num_groups, state)


def _choose(prior: Any, family: Family, pilot: GroupBatch, names: BatchNames, source: GroupSource) -> Prior:
    return choose_prior(
        prior,
        family,
        PriorData(pilot.y, pilot.X, pilot.Z, pilot.offset, pilot.weight, *getattr(source, "products", (None, None))),
        names=names.fixed,
        correlated=names.correlated,
        random_names=names.random,
        group=names.group,
    )


def _pilot_state(
    pilot: GroupBatch, family: Family, prior: Prior, names: BatchNames, cells: int, num_groups: int
) -> BatchState:
    """Fit the first batch by itself."""
    offset = np.zeros(len(pilot.y)) if pilot.offset is None else pilot.offset
    rows = StartRows(pilot.X, pilot.Z, offset, names.correlated)
    alone = batch_target(pilot, family, cells, names.correlated)
    target = SumOfTerms(alone.grouped, prior_terms(prior))
    shared, information = starting_values(rows, pilot.y, family, pilot.weight)
    shared = within_prior(shared, prior.scales)
    size = len(pilot.groups)
    start = compiled_starting_point(target, jnp.asarray(shared), jnp.asarray(information), size)
    q = climb_groups(target, start, hosts=Hosts()).gaussian
    mean, precision = q.mean.shared, q.factor.shared @ q.factor.shared.T
    return _first_state(num_groups, size, mean, precision, prior)


def _first_state(num_groups: int, size: int, mean: np.ndarray, precision: np.ndarray, prior: Prior) -> BatchState:
    """Let every group contribute what a group of the first batch does on average."""
    own = to_host(prior_site(prior_terms(prior), jnp.asarray(mean), jnp.asarray(precision)))
    data = Site(precision @ mean - own.linear, precision - own.precision, 0.0 * own.bound)
    each = jax.tree.map(lambda a: np.asarray(a) / size, data)
    P = own.precision + num_groups * each.precision
    if not _is_positive(P):
        P, start = precision, mean
    else:
        start = np.linalg.solve(P, own.linear + num_groups * each.linear)
    return BatchState(start, 0.5 * (P + P.T), {}, {}, each, (), None)


def _add_up(state: BatchState, num_groups: int) -> Site:
    here, seen = jax.tree.map(np.zeros_like, state.typical), np.float64(sum(state.sizes.values()))
    for site in state.sites.values():
        here = jax.tree.map(np.add, here, site)
    here, seen = total((here, seen))
    return jax.tree.map(lambda a, b: (num_groups - float(seen)) * a + b, state.typical, here)


def _is_positive(matrix: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return bool(np.all(np.isfinite(matrix)))


def _own_names(source: GroupSource) -> BatchNames | None:
    found = getattr(source, "names", None)
    return found if isinstance(found, BatchNames) else None


def _numbered(batch: GroupBatch) -> BatchNames:
    fixed = tuple(f"x{k + 1}" for k in range(batch.X.shape[1]))
    return BatchNames(fixed, tuple(f"z{k + 1}" for k in range(batch.Z.shape[1])))
