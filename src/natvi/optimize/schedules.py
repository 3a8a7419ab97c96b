"""Step sizes that change on the way, as values: two schedules with the same numbers are the same schedule."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp


@dataclass(frozen=True)
class Cosine:
    """A linear rise over `warmup` steps, then a cosine down to `end` times the peak at step `steps`.

    Example:
        >>> schedule = Cosine(peak=0.1, steps=100, warmup=10)
        >>> [round(float(schedule(t)), 3) for t in (0, 9, 55, 100)]
        [0.01, 0.1, 0.05, 0.0]
    """

    peak: float
    steps: int
    warmup: int = 0
    end: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that make no schedule."""
        if not self.peak > 0 or not 0 <= self.end <= 1 or not 0 <= self.warmup < self.steps:
            raise ValueError(
                "A cosine schedule needs a positive peak, 0 <= end <= 1 and warmup shorter than steps; got "
                f"peak={self.peak!r}, end={self.end!r}, warmup={self.warmup!r}, steps={self.steps!r}."
            )

    def __call__(self, count: Any) -> Any:
        """Return the step size at a step count from 0."""
        rise = (count + 1) / max(self.warmup, 1)
        share = jnp.clip((count - self.warmup) / (self.steps - self.warmup), 0.0, 1.0)
        fall = self.end + (1 - self.end) * 0.5 * (1 + jnp.cos(jnp.pi * share))
        return self.peak * jnp.where(count < self.warmup, rise, fall)
