"""What targets of one flat vector, their priors and their Gaussians ask of each other."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.typing import Factor


@runtime_checkable
class FlatMarginals(Protocol):
    """What the rows ask of a Gaussian."""

    @property
    def mean(self) -> Any:
        """The mean."""
        ...

    @property
    def factor(self) -> Factor:
        """The factor, whose pattern the Hessian is needed on."""
        ...

    def row_variances(self, rows: Float[Array, "k d"]) -> Float[Array, " k"]:
        """Return Var(a' theta) for every row a."""
        ...

    def covariance_product(self, x: Any) -> Any:
        """Return Sigma x."""
        ...

    def marginal_sds(self) -> Any:
        """Return the sd of every coordinate."""
        ...


class FlatPoint(NamedTuple):
    """All mass at one theta; the factor tells the pattern alone."""

    mean: Float[Array, " d"]
    factor: Factor

    def row_variances(self, rows: Float[Array, "k d"]) -> Float[Array, " k"]:
        """Return zeros."""
        return jnp.zeros(rows.shape[0], self.mean.dtype)

    def covariance_product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return zeros."""
        return jnp.zeros_like(x)

    def marginal_sds(self) -> Float[Array, " d"]:
        """Return zeros."""
        return jnp.zeros_like(self.mean)


class PriorExpectation(NamedTuple):
    """E log p(theta) with E grad and minus E hess, the latter as a diagonal or whole."""

    value: Float[Array, ""]
    grad: Float[Array, " d"]
    precision: Float[Array, " d"] | Float[Array, "d d"]


@runtime_checkable
class FlatPrior(Protocol):
    """What a target of rows asks of a prior."""

    @property
    def mean(self) -> Float[Array, " d"]:
        """Where its normals are centred."""
        ...

    @property
    def precision(self) -> Float[Array, " d"]:
        """The precisions of its normals; zero for a coordinate that has another prior."""
        ...

    def value(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one point."""
        ...

    def gradient(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return its gradient at one point."""
        ...

    def precision_at(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the diagonal of minus the Hessian at one point."""
        ...

    def expected(self, gaussian: FlatMarginals) -> PriorExpectation:
        """Return E log p with E grad and minus E hess."""
        ...
