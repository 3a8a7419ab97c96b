"""A hierarchy fitted once more, with its locals in coordinates of their own: the cure of funnels.

Where the Gaussian is off, locals that only shared numbers tie together are looked for in the Hessian. In the coordinates
of `structures/standardised.py` a funnel is close to a Gaussian; it is fitted and judged there as any log-density is, and
its draws are carried back.
"""

from typing import NamedTuple

import numpy as np

from natvi.models.density.bound import bound_of
from natvi.models.density.evaluator import Density, Evaluator
from natvi.models.density.fitting import Optimum, find_optimum
from natvi.models.density.space.maps import Space
from natvi.models.density.structures.choice import SMALL, Structure
from natvi.models.density.structures.layout import find_arrow
from natvi.models.density.structures.standardised import standardise
from natvi.models.density.verdict import Answer, judge
from natvi.run.outcome import Outcome

DRAWS = 4096  # that are carried back where the Gaussian in the new coordinates is right


class Settings(NamedTuple):
    """What the first fit was asked for."""

    method: str
    seed: int
    max_steps: int
    tolerance: float


def fit_standardised(
    density: Density, space: Space, structure: Structure, found: Optimum, settings: Settings
) -> Answer | None:
    """Return the answer found with standardised locals, or None where there are no locals, or no optimum.

    Args:
        density: The log-density of the free vector.
        space: From there to the user's numbers.
        structure: Of the first fit.
        found: Its optimum, about which the map is made.
        settings: What was asked for.
    """
    d, seed = len(space.start), settings.seed
    layout = structure.layout or (find_arrow(density, found.gaussian.mean) if d <= SMALL else None)
    carry = None if layout is None else standardise(density, layout, found.gaussian.mean)
    if layout is None or carry is None:
        return None
    evaluator = Evaluator(density, space, carry)
    again = find_optimum(
        *(evaluator, carry.back(found.gaussian.mean), structure),
        seed=seed,
        max_steps=settings.max_steps,
        tolerance=settings.tolerance,
        state=None,
        watch=lambda state: False,
    )
    if again.outcome not in (Outcome.CONVERGED, Outcome.STALLED):
        return None
    rng, names = np.random.default_rng([seed, 6]), space.parameters.entries
    answer = judge(evaluator, again, names, settings.method, rng, structure.points("judge", d, seed))
    read = answer.read
    if read is None:
        half = rng.standard_normal((DRAWS // 2, d))
        read = evaluator(answer.gaussian.at(np.concatenate([half, -half]))).read
    (r, n), g = layout.local.shape, len(layout.shared)
    note = (
        f"a hierarchy was found, {n:,} groups of up to {r} and {g} shared: its locals were standardised given the shared "
        "numbers, which straightens funnels, and the draws carried back"
    )
    bound = bound_of(evaluator, again, np.random.default_rng([seed, 7]))
    return Answer(answer.method, found.gaussian, read, answer.concerns, answer.effective or DRAWS, (note,), bound)
