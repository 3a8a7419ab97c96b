"""The exact fit of a model with groups: its bound climbed on the arrow."""

from typing import Any

from natvi.optimize.arrow_system import ArrowSystem, Natural
from natvi.run.exact.loop import climb
from natvi.run.fitted import Fitted
from natvi.target import SumOfTerms


def climb_groups(target: SumOfTerms, start: Natural, **options: Any) -> Fitted:
    """Maximise the exact bound of a mixed model from natural parameters; options as for `climb`."""
    return climb(ArrowSystem.around(target, start), start, **options)
