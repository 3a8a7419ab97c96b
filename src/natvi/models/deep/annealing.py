"""Data that weigh more at first: the bound of a deep GLM on its way from a likelihood that counts several times to one.

Shrinkage follows the weights as they are, and Xavier weights know nothing of the data yet: of few rows the prior pulls
them to zero before the net has found anything, and a net of zeros, its shrinkage without end, is a place of rest that
no step leaves. So the likelihood counts `first` times at step 0 and comes down to once,

    weight_t = first^(1 - t / steps)  for t < steps,  1 from there on,

which is the same as a weight of the Kullback-Leibler term that rises from 1 / first to 1 (Bowman et al. 2016, Sonderby
et al. 2016). The last steps are those of the bound itself.

A normal response has a variance to estimate too: weighty rows are fitted closely, which makes them weightier still,
until the net runs through every row. So weight times E(1/v) stays below `first` on the way, with responses of variance
one.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

FIRST = 10.0


class Annealing(NamedTuple):
    """How often every row counts.

    Attributes:
        steps: The number of steps with a weight above one; 0 for none.
        first: The weight at step 0.

    Example:
        >>> [round(float(Annealing(100)(t)), 2) for t in (0, 50, 100, 200)]
        [10.0, 3.16, 1.0, 1.0]
    """

    steps: int = 0
    first: float = FIRST

    def __call__(self, count: Any, precision: Any = 1.0) -> Any:
        """Return the weight at a step count from 0, where the response has this expected precision."""
        if self.steps == 0:
            return 1.0
        weight = self.first ** (1.0 - jnp.minimum(count / self.steps, 1.0))
        return jnp.where(count < self.steps, jnp.minimum(weight, self.first / precision), 1.0)

    @property
    def start(self) -> float:
        """The weight at step 0."""
        return self.first if self.steps else 1.0
