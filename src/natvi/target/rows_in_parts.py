"""Rows of which every process holds some: each process's rows stand for its own, and the sums are added up."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.over_hosts import summed
from natvi.target.flat import FlatPrior


class RowsInParts(eqx.Module):
    """log p(theta) + sum over processes k of (N_k / |B_k|) sum over B_k of log p(y_i | theta).

    B_k are rows of process k, N_k is the number it holds. Every process has as many places for rows; those it does not
    need hold copies, which do not count. Outside a program of all processes the sum has one part, this process's.

    Attributes:
        log_likelihood: (theta, rows) -> log p of every row.
        rows: The rows in use, and copies in the places left over.
        prior: The prior, counted once.
        num_rows: Of all processes.
        in_use: How many of this process's places count, |B_k|.
        scale: How many rows each of them stands for, N_k / |B_k|.
    """

    log_likelihood: Callable[[Any, Any], Float[Array, " k"]] = eqx.field(static=True)
    rows: Any
    prior: FlatPrior
    num_rows: int = eqx.field(static=True)
    in_use: Any
    scale: Any

    def with_rows(self, rows: Any) -> "RowsInParts":
        """Return the target with these rows standing for all."""
        return RowsInParts(self.log_likelihood, rows, self.prior, self.num_rows, self.in_use, self.scale)

    def value(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one point."""

        def own(theta: Float[Array, " d"]) -> Float[Array, ""]:
            each = self.log_likelihood(theta, self.rows)
            return self.scale * jnp.sum(jnp.where(self._counts(each.shape[0]), each, 0.0))

        return summed(own)(theta) + self.prior.value(theta)

    def row_gradients(self, theta: Float[Array, " d"]) -> Float[Array, "k d"]:
        """Return the gradient of each own row's log-likelihood, not scaled up; zeros for copies."""

        def one(theta: Float[Array, " d"], row: Any) -> Float[Array, ""]:
            return self.log_likelihood(theta, jax.tree.map(lambda a: a[None], row))[0]

        gradients = jax.vmap(jax.grad(one), in_axes=(None, 0))(theta, self.rows)
        return jnp.where(self._counts(gradients.shape[0])[:, None], gradients, 0.0)

    def _counts(self, places: int) -> Any:
        return jnp.arange(places) < self.in_use
