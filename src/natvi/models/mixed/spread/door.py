"""A mixed model of one factor whose groups lie in many processes, behind the usual door."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family
from natvi.formula.design import parse_formula
from natvi.formula.raw_columns import listing
from natvi.gaussian import ArrowPrecision
from natvi.hosts.collect import collect, count
from natvi.hosts.joining import require_agreement
from natvi.hosts.tables import Files, as_table
from natvi.judge.trust import CARE, Trust
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.linalg.grouped_rows import Room, RowLayout, chunk_size_of, layout_rows
from natvi.models.mixed.draws import effect_covariances
from natvi.models.mixed.posterior import MixedFit
from natvi.models.mixed.spread.groups import OwnGroups, read_groups
from natvi.models.mixed.start import StartRows, starting_point, starting_values, within_prior
from natvi.models.mixed.target import lay_out
from natvi.models.regression.options import check_options, choose_method
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.spread.levels import Common, find_common
from natvi.models.regression.spread.rows import TableRows, notes_of, prior_of
from natvi.models.regression.spread.survey import Survey, survey_rows
from natvi.optimize.arrow_system import ArrowSystem
from natvi.result import Result
from natvi.run.clock import Stopwatch
from natvi.run.exact.parts import climb_in_parts, spread_start
from natvi.target import SumOfTerms
from natvi.x64 import float64

METHODS = ("auto", "gva")
ARROW = "arrow"
MOST_GATHERED = 1_000_000  # groups that every process is given whole
UNCHECKED = "the rows lie in several processes: whether the Gaussian is close to the exact posterior was not checked"


@dataclass(frozen=True, eq=False)
class OwnGroupsFit(MixedFit):
    """A mixed model of millions of groups in many processes, as one of them has it: with the groups of its own."""

    own_groups_only: ClassVar[bool] = True


class _Part(NamedTuple):
    """This process's part of the target, and where its groups stand."""

    target: SumOfTerms
    layout: RowLayout


@dataclass(frozen=True, eq=False)
class SpreadMixed:
    """A mixed model whose groups lie in several processes, ready to be fitted; every process has its own `groups`."""

    formula: str
    family: Family
    common: Common
    groups: OwnGroups
    survey: Survey
    prior: Prior
    words: str

    def fit(
        self,
        *,
        method: str = "auto",
        optimizer: str | None = None,
        max_steps: int | None = None,
        tolerance: float = 1e-9,
        state: Any = None,
        progress: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 2.0,
    ) -> Result:
        """Fit the Gaussian approximation exactly, each process with its own groups.

        Args:
            method: "gva", which is what "auto" takes here: whether the Gaussian is close to the exact posterior is not
                checked.
            optimizer: "ascent"; noisy steps are for one process.
            max_steps: Steps at most; by default 500.
            tolerance: The relative rise of the bound at which the fit stops.
            state: `result.state` of an earlier fit of the same model on as many processes, to go on from.
            progress: Show progress when the fit takes over a second.
            checkpoint: A file that keeps the state, so that a killed fit goes on where it was, on as many processes or
                on another number.
            checkpoint_seconds: The least time between two writes of the checkpoint.

        Returns:
            The result: all groups in every process, or, where they are millions, the process's own.
        """
        chosen = choose_method(METHODS, method, optimizer, {}, ARROW)
        if chosen.is_noisy:
            raise ValueError(
                f"optimizer={optimizer!r} takes noisy steps, and many processes take exact ones. Leave it out."
            )
        keeping = {"state": state, "progress": progress, "checkpoint": checkpoint}
        keeping = check_options(max_steps, 500, tolerance, **keeping, checkpoint_seconds=checkpoint_seconds)
        require_agreement({"max_steps and tolerance": (keeping["max_steps"], tolerance)}, "they would stop apart")
        watch = Stopwatch()
        with float64():
            part = self._part()
            shared, information = self._start()
            places = part.layout.num_places

            def begin(target: SumOfTerms, shared: Any, information: Any) -> Any:
                return starting_point(target, shared, information, places)

            start = spread_start(begin, part.target, jnp.asarray(shared), jnp.asarray(information))
            r, g = self.groups.rows.Z.shape[1], len(shared)  # type: ignore[union-attr]
            numbers = np.zeros(places, np.int64)
            numbers[part.layout.place_of_group] = self.groups.numbers
            mark = self.survey.mark_of(self.words)
            fitted = climb_in_parts(
                ArrowSystem(part.target, r, g), start, numbers, mark, tolerance=tolerance, **keeping
            )
            covariances = effect_covariances(fitted.gaussian)
        place = part.layout.place_of_group
        own = _Own(self.groups.labels, *_in_order(fitted.gaussian, covariances, place))
        whole = self.groups.num_groups <= MOST_GATHERED
        return Result(
            model=self._named(gathered(own) if whole else own, whole),
            method="gva",
            optimizer="ascent",
            structure=ARROW,
            outcome=fitted.outcome,
            elbo=fitted.elbo,
            elbo_se=0.0,
            seconds=watch.read(),
            trace=fitted.trace,
            state=fitted.state,
            check=lambda: (Trust(CARE, (UNCHECKED,)),),
            steps=fitted.steps,
        )

    def _part(self) -> _Part:
        """Lay this process's rows out as all processes do."""
        groups = self.groups
        rows = _inside(groups.rows, self.prior)
        sizes = np.bincount(groups.codes, minlength=len(groups.labels))
        counted = collect(np.unique(sizes, return_counts=True))
        values = np.unique(np.concatenate([v for v, _ in counted]))
        counts = np.zeros(len(values), np.int64)
        for v, c in counted:
            counts[np.searchsorted(values, v)] += c
        cells = int(chunk_size_of(values, counts))
        needs = collect(Room.needed(sizes, cells))
        common = Room(
            cells,
            places=max(need.places for need in needs),
            extra=max(need.extra for need in needs),
            num_simple=min(need.num_simple for need in needs),
        )
        layout = layout_rows(groups.codes, len(groups.labels), common=common)
        design = _design(rows, self.common.design.correlated)
        extra = (rows.weight, rows.constant)
        return _Part(lay_out(design, rows.y, self.family, self.prior, layout, *extra, always_marked=True), layout)

    def _start(self) -> tuple[np.ndarray, float]:
        """Return rough shared values from the sample, the same in all processes."""
        rows = _inside(self.survey.sample, self.prior)
        design = _design(rows, self.common.design.correlated)
        shared, information = starting_values(design, rows.y, self.family, rows.weight)
        return within_prior(shared, self.prior.scales), float(information) * self.survey.num_rows / len(rows.y)

    def _named(self, own: "_Own", whole: bool) -> MixedFit:
        notes = notes_of(self.common, self.family)
        if not whole:
            notes = (*notes, f"{self.groups.num_groups:,} groups; here are the {len(own.labels):,} of this process")
        return (MixedFit if whole else OwnGroupsFit)(
            formula=self.formula,
            family=self.family,
            columns=self.common.recipe,
            fixed_names=self.common.design.fixed_names,
            random_names=self.common.design.random_names,
            group_name=str(self.common.formula.group),
            group_labels=own.labels,
            posterior=own.posterior,
            local_sds=self.prior.coordinates.effect_sds(own.covariances),
            prior=self.prior,
            num_rows=self.survey.num_rows,
            notes=notes,
            correlated=self.common.design.correlated,
        )


class _Own(NamedTuple):
    """Groups with their Gaussian and the covariances of their random effects."""

    labels: np.ndarray
    posterior: ArrowPrecision
    covariances: np.ndarray


def gathered(own: _Own) -> _Own:
    """Return the groups of all processes, sorted by label."""
    if count() == 1:
        return own
    local = own.posterior.mean.local, own.posterior.factor.local, own.posterior.factor.cross, own.covariances
    parts = collect((own.labels, *map(np.asarray, local)))
    labels = np.concatenate([part[0] for part in parts])
    order = np.argsort(labels, kind="stable")
    joined: list[Any] = [np.concatenate([part[k] for part in parts], axis=-1)[..., order] for k in range(1, 5)]
    mean, factor, cross, covariances = joined
    whole = own.posterior
    posterior = ArrowPrecision(
        ArrowVector(mean, whole.mean.shared), ArrowFactor(factor, cross, whole.factor.shared), whole.inverse_shared
    )
    return _Own(labels[order], posterior, covariances)


def _in_order(q: ArrowPrecision, covariances: np.ndarray, place: np.ndarray) -> tuple[ArrowPrecision, np.ndarray]:
    """Bring the groups from their places into the order of their labels."""
    mean, factor, inverse = q
    local = ArrowVector(mean.local[..., place], mean.shared)
    ordered = ArrowFactor(factor.local[..., place], factor.cross[..., place], factor.shared)
    return ArrowPrecision(local, ordered, inverse), covariances[..., place]


def _inside(rows: Any, prior: Prior) -> Any:
    """Return rows with their columns in the coordinates of the prior."""
    return rows._replace(X=prior.coordinates.columns(rows.X), Z=prior.coordinates.random_columns(rows.Z))


def _design(rows: Any, correlated: bool) -> StartRows:
    offset = np.zeros(len(rows.y)) if rows.offset is None else rows.offset
    return StartRows(rows.X, rows.Z, offset, correlated)


def spread_glmm(formula: str, data: Any, family: Family, prior: Any, weights: Any, missing: str) -> SpreadMixed:
    """Survey the rows of all processes, and describe the model; arguments as for `natvi.glmm`."""
    words = {"formula": formula, "family": (family.name, family.link), "weights": repr(weights), "missing": missing}
    words |= {"prior": repr(prior)}
    require_agreement(words, "they would not fit the same model")
    parsed = parse_formula(formula)
    if parsed.group is None:
        raise ValueError(
            f"the formula {formula!r} has several grouping factors, and rows in many processes or in pieces know one: "
            "effects of a second factor belong to rows everywhere. Fit all rows in one process (2 million rows take a "
            "few GiB), or keep one factor, (1 | g)."
        )
    table = as_table(data)
    if isinstance(table, Files):
        table = table.by_group(parsed.group)
    common = find_common(parsed, table, weights, missing)
    source = TableRows(common, table, family)
    survey = survey_rows(source.rows, family, common.rows)
    empty = [
        name
        for name, mean, sd in zip(common.design.random_names, survey.Z.mean, survey.Z.sd, strict=True)
        if mean == 0 and sd == 0
    ]
    if empty:
        raise ValueError(
            f"the random effect of {listing(empty)} has a column that is zero in every row, so the data say nothing "
            f"about it. Leave it out of (... | {parsed.group}), or check the column."
        )
    groups = read_groups(source, parsed.group)
    chosen = prior_of(prior, family, common, source, survey)
    return SpreadMixed(formula, family, common, groups, survey, chosen, repr(words))
