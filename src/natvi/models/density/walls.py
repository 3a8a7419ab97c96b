"""Walls: places near the answer where the log-density is not finite, of which no gradient tells."""

import numpy as np

from natvi.judge.trust import CARE, Trust
from natvi.models.density.climbing.fitting import Optimum
from natvi.models.density.evaluator import LooksAtPoints
from natvi.models.density.space.maps import Space
from natvi.run.outcome import Outcome

DRAWS = 256
TOLD = 3  # parameters that are named


def find_walls(look: LooksAtPoints, found: Optimum, space: Space) -> tuple[Trust, ...]:
    """Say beyond which parameters the log-density ends, where a climb was stopped by that.

    A wall lies across a parameter whose draws beyond it are, on average, far from those before it.
    """
    if found.outcome is not Outcome.STALLED:
        return ()
    theta = found.gaussian.at(np.random.default_rng(0).standard_normal((DRAWS, len(space.start))))
    beyond = ~np.isfinite(look.values(theta))
    if not beyond.any() or beyond.all():
        return ()
    apart = np.abs(theta[beyond].mean(axis=0) - theta[~beyond].mean(axis=0)) / theta.std(axis=0)
    order = np.argsort(-apart)
    names = list(dict.fromkeys(space.free.names[space.free.owners[j]] for j in order if apart[j] > 0.5 * apart.max()))
    told = ", ".join(names[:TOLD])
    text = (
        f"the log-density is not finite at {100 * beyond.mean():.0f}% of the points around the answer: it ends at a "
        f"wall, probably of {told}, which stops a climb. Say so by constrain=, e.g. {{{names[0]!r}: "
        "natvi.bijectors.lower(0.0)}, upper(...) or interval(...)"
    )
    return (Trust(CARE, (text,)),)
