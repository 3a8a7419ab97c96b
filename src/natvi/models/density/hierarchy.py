"""A hierarchy fitted once more, with its locals in coordinates of their own: the cure of funnels.

Where the Gaussian is off, locals that only shared numbers tie together are looked for in the Hessian. In the
coordinates of `structures/standardised.py` a funnel is close to a Gaussian; it is fitted and judged there as any
log-density is, and its draws are carried back.
"""

from typing import NamedTuple

import numpy as np

from natvi.models.density.bound import bound_of
from natvi.models.density.climbing.fitting import Optimum, find_optimum
from natvi.models.density.evaluator import Density, Evaluator, LooksAtPoints, read_pairs
from natvi.models.density.space.maps import Space
from natvi.models.density.structures.choice import SMALL, Structure
from natvi.models.density.structures.layout import find_arrow_near
from natvi.models.density.structures.standardised import Standardised, standardise
from natvi.models.density.verdict import Answer, judge
from natvi.run.outcome import Outcome

DRAWS = 4096  # that are carried back where the Gaussian in the new coordinates is right


class Settings(NamedTuple):
    """What the first fit was asked for."""

    method: str
    seed: int
    max_steps: int
    tolerance: float
    progress: bool = False


class Straightened(NamedTuple):
    """A hierarchy in coordinates in which its locals are standardised.

    Attributes:
        carry: From these coordinates to the free vector.
        evaluator: The log-density there.
        optimum: Of the bound, there.
        note: In words for the user.
    """

    carry: Standardised
    evaluator: Evaluator
    optimum: Optimum
    note: str


def straighten(
    density: Density, look: LooksAtPoints, space: Space, structure: Structure, found: Optimum, settings: Settings
) -> Straightened | None:
    """Return the fit with standardised locals, or None where there are no locals, or no optimum.

    Args:
        density: The log-density of the free vector.
        look: Its values and gradients at many points.
        space: From there to the user's numbers.
        structure: Of the first fit.
        found: Its optimum, about which the map is made.
        settings: What was asked for.
    """
    d, mean = len(space.start), found.gaussian.mean
    sds = found.gaussian.sds
    layout = structure.layout or (find_arrow_near(look, mean, sds) if d <= SMALL else None)
    carry = None if layout is None else standardise(density, layout, look, mean, sds)
    if layout is None or carry is None:
        return None
    evaluator = Evaluator(density, space, carry)
    again = find_optimum(
        *(evaluator, carry.back(mean), structure),
        seed=settings.seed,
        max_steps=settings.max_steps,
        tolerance=settings.tolerance,
        state=None,
        watch=lambda state: False,
        look_around=False,
    )._replace(rivals=found.rivals)
    if again.outcome not in (Outcome.CONVERGED, Outcome.STALLED):
        return None
    (r, n), g = layout.local.shape, len(layout.shared)
    note = (
        f"a hierarchy was found, {n:,} groups of up to {r} and {g} shared: its locals were standardised given the "
        "shared numbers, which straightens funnels, and the draws carried back"
    )
    return Straightened(carry, evaluator, again, note)


def fit_standardised(
    density: Density, look: LooksAtPoints, space: Space, structure: Structure, found: Optimum, settings: Settings
) -> Answer | None:
    """Return the answer found with standardised locals, or None; arguments as for `straighten`."""
    straight = straighten(density, look, space, structure, found, settings)
    if straight is None:
        return None
    d, seed = len(space.start), settings.seed
    evaluator, rng = straight.evaluator, np.random.default_rng([seed, 6])
    z = structure.points("judge", d, seed)
    answer = judge(evaluator, straight.optimum, space.parameters.entries, settings.method, rng, z)
    read = answer.read
    if read is None:
        read = read_pairs(evaluator, answer.gaussian, DRAWS, rng)
    bound = bound_of(evaluator, straight.optimum, np.random.default_rng([seed, 7]))
    effective = answer.effective or DRAWS
    return Answer(answer.method, found.gaussian, read, answer.concerns, effective, (straight.note,), bound)
