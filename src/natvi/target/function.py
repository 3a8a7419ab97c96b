"""Any log-density of a flat vector as a target."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from natvi.typing import Vector


class FunctionTarget(eqx.Module):
    """log p(theta, data) given by a function; `data` is a tuple of arrays, so that new data need no compilation."""

    function: Callable[..., Float[Array, ""]] = eqx.field(static=True)
    data: Any = ()

    def value(self, theta: Vector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return self.function(theta, *self.data)
