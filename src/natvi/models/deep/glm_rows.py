"""A deep GLM as a log-density of rows: a perceptron, a response, and the prior that its shrinkage gives now."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.models.deep.dispersion import Dispersion
from natvi.models.deep.net_rows import NetRows
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.target.rows import scale_up


class DeepGlmRows(eqx.Module):
    """log p(theta | shrinkage) + sum_i log p(y_i | net(theta, x_i)); of normal responses its expectation under q(v)."""

    net: NetRows = eqx.field(static=True)
    rows: Any
    prior: IndependentNormal
    dispersion: Dispersion | None
    num_rows: Any  # not static: a stream of rows grows

    @property
    def scale(self) -> Any:
        """How many rows each row in use stands for."""
        return scale_up(self.num_rows, self.rows["y"].shape[0])

    def with_rows(self, rows: Any) -> "DeepGlmRows":
        """Return the target with these rows standing for all."""
        return DeepGlmRows(self.net, rows, self.prior, self.dispersion, self.num_rows)

    def with_prior(self, prior: IndependentNormal, dispersion: Dispersion | None) -> "DeepGlmRows":
        """Return the target as the shrinkage and q(v) make it."""
        return DeepGlmRows(self.net, self.rows, prior, dispersion, self.num_rows)

    def weighted(self, weight: Any) -> "DeepGlmRows":
        """Return the target with every row counted so often."""
        return DeepGlmRows(self.net, self.rows, self.prior, self.dispersion, self.num_rows * weight)

    def log_likelihood(self, theta: Float[Array, " d"], rows: Any) -> Float[Array, " k"]:
        """Return the log-likelihood of every row."""
        if self.dispersion is None:
            return self.net(theta, rows)
        return self.dispersion.row_density(rows["y"], self.net.output(theta, rows["x"])[:, 0])

    def value(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one point."""
        each = self.log_likelihood(theta, self.rows)
        return scale_up(self.num_rows, each.shape[0]) * jnp.sum(each) + self.prior.value(theta)

    def row_gradients(self, theta: Float[Array, " d"]) -> Float[Array, "k d"]:
        """Return the gradient of each row's log-likelihood, not scaled up."""

        def one(theta: Float[Array, " d"], row: Any) -> Float[Array, ""]:
            return self.log_likelihood(theta, jax.tree.map(lambda a: a[None], row))[0]

        return jax.vmap(jax.grad(one), in_axes=(None, 0))(theta, self.rows)

    def squares(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the sum of squared residuals, scaled up to all rows."""
        residuals = self.rows["y"] - self.net.output(theta, self.rows["x"])[:, 0]
        return scale_up(self.num_rows, residuals.shape[0]) * jnp.sum(residuals**2)
