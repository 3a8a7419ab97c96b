"""The variance v of normal responses in a deep GLM: v ~ inverse gamma(a_0, b_0), q(v) inverse gamma(a, b).

    a = a_0 + n/2,  b = b_0 + E sum_i (y_i - eta_i)^2 / 2,  E(1/v) = a/b,  E log v = log b - digamma(a)

b is noisy where the sum comes from a minibatch and one draw of the weights: it is averaged over steps.

Paper: supplement S8.1.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

SHAPE_0, SCALE_0 = 1.0, 1.0
SMOOTHING = 0.05  # the share of a new estimate of b


class Dispersion(NamedTuple):
    """Shape and scale of q(v)."""

    a: Float[Array, ""]
    b: Float[Array, ""]

    @property
    def precision(self) -> Float[Array, ""]:
        """E(1/v)."""
        return self.a / self.b

    def row_density(self, y: Float[Array, " k"], eta: Float[Array, " k"]) -> Float[Array, " k"]:
        """Return E log p(y_i | eta_i, v) under q(v)."""
        expected_log = jnp.log(self.b) - digamma(self.a)
        return -0.5 * (jnp.log(2 * jnp.pi) + expected_log + self.precision * (y - eta) ** 2)

    def bound(self) -> Float[Array, ""]:
        """Return E log p(v) - E log q(v)."""
        expected_log = jnp.log(self.b) - digamma(self.a)
        prior = SHAPE_0 * jnp.log(SCALE_0) - gammaln(SHAPE_0) - (SHAPE_0 + 1) * expected_log - SCALE_0 * self.a / self.b
        own = self.a * jnp.log(self.b) - gammaln(self.a) - (self.a + 1) * expected_log - self.a
        return prior - own


def first_dispersion(num_rows: float, variance: float = 1.0) -> Dispersion:
    """Return q(v) around a variance."""
    a = jnp.asarray(SHAPE_0 + num_rows / 2, jnp.float32)
    return Dispersion(a, a * variance)


def update_dispersion(
    old: Dispersion, squares: Float[Array, ""], num_rows: Any, share: float = SMOOTHING
) -> Dispersion:
    """Return q(v) moved towards its optimum for a sum of squares of all rows."""
    a = SHAPE_0 + num_rows / 2 + 0.0 * old.a
    return Dispersion(a, (1 - share) * old.b * (a / old.a) + share * (SCALE_0 + 0.5 * squares))
