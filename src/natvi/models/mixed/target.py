"""From a design to arrays: the target of a mixed model and a point to start from.

Shared coordinates are ordered (beta, dispersion, omega), so that the likelihood touches one contiguous range.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family
from natvi.formula.design import Design
from natvi.linalg import GroupedRows, layout_rows
from natvi.models.mixed.start import compiled_starting_point, starting_values, within_prior
from natvi.models.regression.prior.choice import Prior
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
        fill_up: Whether to add empty groups up to the next of few sizes, for which programs are compiled already.

    Returns:
        The target with a start.
    """
    assert design.group_codes is not None and design.group_labels is not None
    p, r, num_groups = design.X.shape[1], design.Z.shape[1], len(design.group_labels)
    layout = layout_rows(design.group_codes, num_groups, fill_up)
    rows = GroupedRows(
        X=jnp.asarray(layout.place(design.X.T)),
        Z=jnp.asarray(layout.place(design.Z.T)),
        offset=jnp.asarray(layout.place(design.offset)),
        filled=jnp.asarray(layout.place(np.ones(len(y), dtype=bool), fill=False)),
        extra=jnp.asarray(layout.extra),
        num_simple=layout.num_simple,
    )
    likelihood = LikelihoodRows(
        rows,
        jnp.asarray(layout.place(y)),
        family,
        weight=None if weight is None else jnp.asarray(layout.place(weight)),
        constant=constant,
    )
    real = layout.real_groups()
    effects = RandomEffectsPrior(
        r, p + family.num_extras, design.correlated, None if real is None else jnp.asarray(real)
    )
    target = SumOfTerms((likelihood, effects), prior_terms(prior))
    shared, information = starting_values(design, y, family, weight)
    shared = within_prior(shared, prior.scales)
    start = compiled_starting_point(target, jnp.asarray(shared), jnp.asarray(information), layout.num_places)
    return MixedTarget(target, start, layout.place_of_group)


def prior_terms(prior: Prior) -> tuple[SharedTerm, ...]:
    """Return the terms of theta_g alone: first the normals, then the priors of sds, correlations and dispersion."""
    normals = NormalPrior(jnp.asarray(prior.mean), jnp.asarray(prior.sd))
    alone = tuple(ScalePrior.of(found.density, found.position, found.power) for found in prior.scales.placed)
    together = tuple(OmegaPrior.of(found.densities, found.eta, found.start) for found in prior.scales.covariances)
    return (normals, *alone, *together)
