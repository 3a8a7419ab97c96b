"""What a response distribution consists of."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.families.rows import PredictorMoments, RowExpectation


class Family(NamedTuple):
    """A response distribution with its link; hashable, so that compiled code is shared between fits.

    Attributes:
        name: Such as "poisson".
        link: Such as "log": which function of the mean is linear.
        dispersion: The name of the dispersion parameter, one real number on the log scale, or None.
        log_kernel: (y, eta, dispersion or None) -> the part of log p(y | eta, dispersion) in which eta takes part.
        log_normaliser: (y, dispersion or None) -> the rest of it. Whoever moves eta alone computes it once.
        expected: (y, PredictorMoments) -> E log p with its derivatives in the means.
        mean: eta -> the mean of the response (of one trial).
        variance: (mean, dispersion or None) -> the variance of the response (of one trial).
        start: y -> a rough predictor, finite for every y that the family takes.
        draw: (key, eta, dispersion or None) -> responses (of one trial).
        read_power: The power of the dispersion that tables show and priors are set on by default: 1 for sigma; -1/2
            for phi and shape, since 1/sqrt(phi) is the relative spread that they stand for. It is zero where the
            response is as even as can be, and there phi itself has neither mean nor sd.
    """

    name: str
    link: str
    dispersion: str | None
    log_kernel: Callable[..., Float[Array, "*rows"]]
    log_normaliser: Callable[..., Float[Array, "*rows"]]
    expected: Callable[[Float[Array, "*rows"], PredictorMoments], RowExpectation]
    mean: Callable[[Float[Array, "*rows"]], Float[Array, "*rows"]]
    variance: Callable[..., Float[Array, "*rows"]]
    start: Callable[[Float[Array, "*rows"]], Float[Array, "*rows"]]
    draw: Callable[..., Float[Array, "*rows"]]
    read_power: float = 1.0

    @property
    def has_dispersion(self) -> bool:
        """Whether the family has a dispersion parameter, on the log scale."""
        return self.dispersion is not None

    def log_density(
        self, y: Float[Array, "..."], eta: Float[Array, "..."], disp: Float[Array, "..."] | None
    ) -> Float[Array, "..."]:
        """Return log p(y | eta, dispersion) of every row."""
        return self.log_kernel(y, eta, disp) + self.log_normaliser(y, disp)


def no_normaliser(y: Float[Array, "*rows"], disp: Float[Array, ""] | None) -> Float[Array, "*rows"]:
    """Return zeros: eta takes part in all of log p."""
    return jnp.zeros_like(y)
