"""One member of the suite: data, a log-density in the user's space, and where its truth comes from."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Data = dict[str, np.ndarray]
Draws = dict[str, np.ndarray]


@dataclass(frozen=True)
class Reference:
    """The same posterior in coordinates in which NUTS mixes, and the way from its draws to the user's parameters.

    Attributes:
        logdensity: Of other parameters, given the data.
        start: From the data to where chains start, in the constrained space.
        constrain: By name of a parameter.
        complete: From draws, data and a generator to draws of the user's parameters.
    """

    logdensity: Callable[[Any, Data], Any]
    start: Callable[[Data], dict[str, Any]]
    complete: Callable[[Draws, Data, np.random.Generator], Draws]
    constrain: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Posterior:
    """A log-density with data of its own.

    Attributes:
        name: In the tables.
        simulate: From a generator to data.
        logdensity: Of the parameters in the user's space, given the data.
        start: From the data to zeros of the unconstrained space, in the user's space.
        constrain: By name of a parameter.
        exact: From data, a generator and a number to draws of the posterior itself, where they can be had.
        reference: Coordinates for NUTS, where the user's own are not good ones.
        modes_apart: Sds between separated modes, 0 where there is one.
    """

    name: str
    simulate: Callable[[np.random.Generator], Data]
    logdensity: Callable[[Any, Data], Any]
    start: Callable[[Data], dict[str, Any]]
    constrain: dict[str, Any] = field(default_factory=dict)
    exact: Callable[[Data, np.random.Generator, int], Draws] | None = None
    reference: Reference | None = None
    modes_apart: float = 0.0

    @property
    def slug(self) -> str:
        """The name as the command line and files have it."""
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower().replace(",", "")).strip("-")
