"""Coordinates x in which the shared parameters theta_g are drawn: plain, curved (`coordinates`), or `straight`.

Draws and densities outside are always those of theta_g; log q(theta_g) = log q(x) - log |d theta_g / d x|. What is
beyond the range of numbers becomes infinite or NaN without a warning, and such points get the weight zero.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from natvi.models.mixed.marginal import coordinates

STEP = 1e-5  # in sds, for the slopes of a chart


@runtime_checkable
class Chart(Protocol):
    """A smooth one-to-one map between x and theta_g, for many points at once."""

    def to_shared(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s g"]:
        """Return theta_g."""
        ...

    def from_shared(self, shared: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s g"]:
        """Return x."""
        ...

    def log_volume(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, " s"]:
        """Return log |d theta_g / d x|."""
        ...


class Plain:
    """x is theta_g itself."""

    def to_shared(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s g"]:
        """Return theta_g."""
        return x

    def from_shared(self, shared: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s g"]:
        """Return x."""
        return shared

    def log_volume(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, " s"]:
        """Return zeros."""
        return np.zeros(len(x))


class Curved:
    """x holds log sds and atanh of the correlation of two random effects."""

    def to_shared(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s g"]:
        """Return theta_g."""
        return coordinates.to_shared(x, np)

    def from_shared(self, shared: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s g"]:
        """Return x."""
        return coordinates.from_shared(shared)

    def log_volume(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, " s"]:
        """Return log |d theta_g / d x|."""
        return coordinates.log_volume(x, np)


def carry_over(
    old: Chart, new: Chart, centre: Float[np.ndarray, " g"], factor: Float[np.ndarray, "g m"]
) -> tuple[Float[np.ndarray, " g"], Float[np.ndarray, "g m"]]:
    """Return a point and directions of one chart in another: the slope of x_new(x_old), by differences, times them."""
    steps = STEP * factor.T
    at = np.concatenate([centre[None], centre + steps, centre - steps])
    moved = new.from_shared(old.to_shared(at))
    m = len(steps)
    return moved[0], ((moved[1 : m + 1] - moved[m + 1 :]) / (2 * STEP)).T
