"""A net and its likelihood as the log-likelihood of rows {"x", "y"}."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float

from natvi.models.deep.layout import Layout
from natvi.models.deep.likelihoods import Likelihood


@dataclass(frozen=True)
class NetRows:
    """log p(y_i | net(theta, x_i)) of every row; equal for equal parts, so that fits share compiled code."""

    apply: Callable[[Any, Any], Any]
    layout: Layout
    likelihood: Likelihood

    def __call__(self, theta: Float[Array, " d"], rows: Any) -> Float[Array, " k"]:
        """Return the log-likelihood of every row."""
        return self.likelihood.log_density(self.output(theta, rows["x"]), rows["y"])

    def output(self, theta: Float[Array, " d"], X: Any) -> Any:
        """Return the net's output."""
        return self.apply(self.layout.unravel(theta), X)
