"""Checks of a fitted mixed model."""

from natvi.models.mixed_fit import MixedFit
from natvi.result.trust import Trust
from natvi.target import SumOfTerms


def check_fit(target: SumOfTerms, fit: MixedFit) -> tuple[Trust, ...]:
    """Placeholder."""
    return ()
