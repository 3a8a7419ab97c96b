"""Targets that are sums over rows of data, so that a few rows can stand for all of them.

With a minibatch B of the N rows,  log p(theta) + (N/|B|) sum over B of log p(y_i | theta)  is an unbiased estimate of
the whole log-density. The rows are any pytree of arrays with a common leading axis.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.target.flat import FlatPrior
from natvi.typing import Vector

T = TypeVar("T", bound="RowTarget")


@runtime_checkable
class RowTarget(Protocol):
    """A log-density with rows that can be exchanged, and each row's gradient."""

    @property
    def rows(self) -> Any:
        """The rows in use, a pytree with a common leading axis."""
        ...

    @property
    def num_rows(self) -> int:
        """The number of rows of the whole data."""
        ...

    @property
    def scale(self) -> Any:
        """How many rows each row in use stands for."""
        ...

    @property
    def prior(self) -> FlatPrior:
        """The prior."""
        ...

    def with_rows(self: T, rows: Any) -> T:
        """Return the target with these rows standing for all."""
        ...

    def row_gradients(self, theta: Float[Array, " d"]) -> Float[Array, "k d"]:
        """Return the gradient of each row's log-likelihood, not scaled up."""
        ...

    def value(self, theta: Vector) -> Float[Array, ""]:
        """Return the log-density at one point, the rows scaled up to all."""
        ...


class FunctionRows(eqx.Module):
    """Rows with a log-likelihood given by a function (theta, rows) -> log p of every row.

    Example:
        >>> from natvi.target.priors.independent_normal import IndependentNormal
        >>> def normal(theta, rows):
        ...     return -0.5 * (rows["y"] - theta[0]) ** 2
        >>> rows = {"y": jnp.array([1.0, 2.0, 3.0, 6.0])}
        >>> target = FunctionRows(normal, rows, IndependentNormal.around_zero(1), num_rows=4)
        >>> half = target.with_rows({"y": jnp.array([1.0, 3.0])})
        >>> [round(float(t.value(jnp.zeros(1))), 3) for t in (target, half)]
        [-28.222, -13.222]
    """

    log_likelihood: Callable[[Any, Any], Float[Array, " k"]] = eqx.field(static=True)
    rows: Any
    prior: FlatPrior
    num_rows: int = eqx.field(static=True)

    @property
    def scale(self) -> Any:
        """How many rows each row in use stands for."""
        return scale_up(self.num_rows, jax.tree.leaves(self.rows)[0].shape[0])

    def with_rows(self, rows: Any) -> "FunctionRows":
        """Return the target with these rows standing for all."""
        return FunctionRows(self.log_likelihood, rows, self.prior, self.num_rows)

    def value(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one point."""
        each = self.log_likelihood(theta, self.rows)
        return scale_up(self.num_rows, each.shape[0]) * jnp.sum(each) + self.prior.value(theta)

    def row_gradients(self, theta: Float[Array, " d"]) -> Float[Array, "k d"]:
        """Return the gradient of each row's log-likelihood, not scaled up."""

        def one(theta: Float[Array, " d"], row: Any) -> Float[Array, ""]:
            return self.log_likelihood(theta, jax.tree.map(lambda a: a[None], row))[0]

        return jax.vmap(jax.grad(one), in_axes=(None, 0))(theta, self.rows)


def scale_up(num_rows: Any, in_use: int) -> Any:
    """Return N/|B|, how many rows each row in use stands for."""
    return num_rows / in_use
