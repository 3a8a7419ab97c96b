"""Where the upper rungs work: the coordinates in which the fit is a standard normal."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.models.density.climbing.fitting import Rival
from natvi.models.density.evaluator import Carry, Density, Evaluator


class Place(NamedTuple):
    """The whitened Gaussian, in the free space or in that of standardised locals.

    Attributes:
        density: The log-density of the free vector.
        gaussian: The Gaussian that whitens.
        carry: From the Gaussian's coordinates to the free vector; None where they are the same.
        evaluator: The log-density at the Gaussian's coordinates, and what the user reads there.
        rivals: Other places where climbs ended.
        seed: Of all draws.
        progress: Whether to show progress.
    """

    density: Density
    gaussian: Any
    carry: Carry | None
    evaluator: Evaluator
    rivals: tuple[Rival, ...]
    seed: int
    progress: bool = False

    @property
    def dimension(self) -> int:
        """How many numbers there are."""
        return len(self.gaussian.mean)

    @property
    def log_p(self) -> Callable[[Float[Array, " d"]], Array]:
        """The log-density of z, all constants of the maps included."""

        def log_p(z: Float[Array, " d"]) -> Array:
            t = self.gaussian.traced_at(z)
            theta, log_det = (t, 0.0) if self.carry is None else self.carry(t)
            return jnp.asarray(self.density(theta), z.dtype) + log_det + self.gaussian.log_det

        return log_p

    def read(self, z: Float[np.ndarray, "s d"]) -> np.ndarray:
        """Return the user's numbers."""
        return self.evaluator.read(self.gaussian.at(z))
