"""How a fit ended, in one word."""

from enum import StrEnum


class Outcome(StrEnum):
    """How a fit ended."""

    CONVERGED = "converged"
    MAX_STEPS = "max_steps"
    STOPPED_EARLY = "stopped_early"
    STALLED = "stalled"
    INTERRUPTED = "interrupted"
    NONFINITE = "nonfinite"
    SINGULAR_FACTOR = "singular_factor"
    UNBOUNDED = "unbounded"
