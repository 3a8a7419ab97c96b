"""From a design to arrays: the target of a mixed model and a point to start from.

Shared coordinates are ordered (beta, dispersion, omega), so that the likelihood touches one contiguous range.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from natvi.families.stacked import for_rows, interleave, stacked_columns
from natvi.families.table import Family
from natvi.formula.design import Design
from natvi.linalg import GroupedRows, layout_rows
from natvi.linalg.buckets import column_bucket
from natvi.linalg.grouped_rows import RowLayout
from natvi.models.mixed.filling import filled_prior
from natvi.models.mixed.start import GroupedDesign, compiled_starting_point, starting_values, within_prior
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.rows import Covariates
from natvi.optimize.arrow_system import Natural
from natvi.target import LikelihoodRows, NormalPrior, RandomEffectsPrior, SumOfTerms
from natvi.target.priors.omega_prior import OmegaPrior
from natvi.target.priors.scale_prior import ScalePrior
from natvi.target.term import SharedTerm


class MixedTarget(NamedTuple):
    """The target, a point to start from, and where each group of the data stands in the target."""

    target: SumOfTerms
    start: Natural
    place_of_group: np.ndarray


def build_target(
    design: Design,
    y: np.ndarray,
    family: Family,
    prior: Prior,
    weight: np.ndarray | None = None,
    constant: float = 0.0,
    fill_up: bool = False,
) -> MixedTarget:
    """Lay the rows out by group and assemble the terms.

    Args:
        design: The arrays of the formula.
        y: The response as numbers; proportions for a binomial response.
        family: The response distribution.
        prior: Of the shared coordinates.
        weight: How often each row counts, trials included; None where every row counts once.
        constant: What the weighted rows lack: the log binomial coefficients.
        fill_up: Whether to add empty groups, and columns of zeros, up to the next of few sizes, for which programs are
            compiled already.

    Returns:
        The target with a start.
    """
    assert design.group_codes is not None and design.group_labels is not None
    layout = layout_rows(design.group_codes, len(design.group_labels), fill_up)
    p = design.X.shape[1]
    filling = column_bucket(p, len(y)) - p if fill_up else 0
    target = lay_out(design, y, family, prior, layout, weight, constant, filling=filling)
    shared, information = starting_values(design, y, family, weight)
    shared = np.insert(within_prior(shared, prior.scales), [p] * filling, 0.0)
    start = compiled_starting_point(target, shared, np.asarray(information), layout.num_places)
    return MixedTarget(target, start, layout.place_of_group)


def lay_out(
    design: GroupedDesign,
    y: np.ndarray,
    family: Family,
    prior: Prior,
    layout: RowLayout,
    weight: np.ndarray | None = None,
    constant: float = 0.0,
    always_marked: bool = False,
    filling: int = 0,
) -> SumOfTerms:
    """Lay the rows out by group and return the terms.

    Args:
        design: The columns.
        y: As in `build_target`, like all that follows.
        family: The response distribution.
        prior: Of the shared coordinates.
        layout: Where each row goes.
        weight: How often each row counts.
        constant: What the weighted rows lack.
        always_marked: Whether to say which places hold a group even where all do.
        filling: How many columns of zeros to put after those of the model.
    """
    p, r = design.X.shape[1], design.Z.shape[1]
    likelihood = grouped_likelihood(Covariates(design.X, design.offset, design.Z), y, weight, family, layout, filling)
    likelihood = replace(likelihood, constant=jax.device_put(np.asarray(constant)))
    real = layout.real_groups()
    if real is None and always_marked:
        real = np.ones(layout.num_places, dtype=bool)
    effects = RandomEffectsPrior(
        r, p + filling + family.num_extras, design.correlated, None if real is None else jax.device_put(real)
    )
    return SumOfTerms((likelihood, effects), prior_terms(filled_prior(prior, p, filling)))


def grouped_likelihood(
    rows: Covariates, y: np.ndarray, weight: np.ndarray | None, family: Family, layout: RowLayout, filling: int = 0
) -> LikelihoodRows:
    """Lay rows out by group; those of several predictors as several rows of one, cell beside cell."""
    assert rows.Z is not None
    offset = np.zeros(len(y)) if rows.offset is None else rows.offset
    kinds = [(rows.X, rows.Z, offset)]
    if family.parts:
        kinds = [(X, Z, np.asarray(known)) for X, Z, known in stacked_columns(family, rows.X, rows.Z, offset)]

    def put(values: list[np.ndarray], fill: float | bool = 0.0) -> jax.Array:
        placed = [layout.place(each, fill) for each in values]
        return jax.device_put(placed[0] if len(placed) == 1 else interleave(placed, axis=-2))

    def repeated(values: np.ndarray, fill: float | bool = 0.0) -> jax.Array:
        return put([values] * len(kinds), fill)

    nothing = [np.zeros((filling, len(y)))] if filling else []
    design = GroupedRows(
        X=put([np.concatenate([X.T, *nothing]) if filling else X.T for X, _, _ in kinds]),
        Z=put([Z.T for _, Z, _ in kinds]),
        offset=put([known for _, _, known in kinds]),
        filled=repeated(np.ones(len(y), dtype=bool), False),
        extra=jax.device_put(layout.extra),
        num_simple=layout.num_simple,
    )
    counts = None if weight is None else repeated(weight)
    return LikelihoodRows(design, repeated(y), for_rows(family), weight=counts, constant=jax.device_put(np.zeros(())))


def prior_terms(prior: Prior) -> tuple[SharedTerm, ...]:
    """Return the terms of theta_g alone: first the normals, then the priors of sds, correlations and dispersion."""
    normals = NormalPrior(jax.device_put(prior.mean), jax.device_put(prior.sd))
    alone = tuple(ScalePrior.of(found.density, found.position, found.power) for found in prior.scales.placed)
    together = tuple(OmegaPrior.of(found.densities, found.eta, found.start) for found in prior.scales.covariances)
    return (normals, *alone, *together)
