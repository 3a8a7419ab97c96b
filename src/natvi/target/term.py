"""What a term promises, and the sum of terms that makes a target.

A term is a function of a low-dimensional linear image of theta. `expected` gives its expectation under a
Gaussian together with E grad and E hess (Bonnet's and Price's theorems: the first and second derivative of
the expectation in the mean), on the arrow pattern. A term touches the local coordinates and one contiguous
range of the shared ones, which starts at `start`.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.linalg import ArrowMatrix, ArrowVector, GroupedRows
from natvi.linalg.grouped_rows import RowMoments


class Contribution(NamedTuple):
    """A term's expectation with E grad and E hess; shared parts cover the term's own range only."""

    value: Float[Array, ""]
    grad: ArrowVector
    hess: ArrowMatrix


@runtime_checkable
class Marginals(Protocol):
    """What a term asks of a Gaussian."""

    @property
    def mean(self) -> ArrowVector: ...

    def row_moments(self, design: GroupedRows, with_shared: tuple[int, ...]) -> RowMoments: ...

    def group_moments(self, start: int, stop: int) -> tuple[Float[Array, "k n"], Float[Array, "k k n"]]: ...

    def shared_variances(self) -> Float[Array, " g"]: ...


@runtime_checkable
class Term(Protocol):
    """A summand of the log-density."""

    @property
    def start(self) -> int: ...

    def value(self, theta: ArrowVector) -> Float[Array, ""]: ...

    def expected(self, gaussian: Marginals) -> Contribution: ...


class SumOfTerms(eqx.Module):
    """The log-density `sum_k term_k(theta)` of a hierarchical model with g shared coordinates."""

    terms: tuple[Term, ...]

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return sum((term.value(theta) for term in self.terms), jnp.zeros(()))

    def expected(self, gaussian: Marginals) -> Contribution:
        """Return E log-density, E grad and E hess under the Gaussian, exactly."""
        mean = gaussian.mean
        (r, n), g = mean.local.shape, mean.shared.shape[0]
        value, local, shared = jnp.zeros(()), jnp.zeros((r, n)), jnp.zeros(g)
        blocks, cross, corner = jnp.zeros((r, r, n)), jnp.zeros((g, r, n)), jnp.zeros((g, g))
        for term in self.terms:
            part = term.expected(gaussian)
            own = slice(term.start, term.start + part.grad.shared.shape[0])
            value += part.value
            local, shared = local + part.grad.local, shared.at[own].add(part.grad.shared)
            blocks, cross = blocks + part.hess.local, cross.at[own].add(part.hess.cross)
            corner = corner.at[own, own].add(part.hess.shared)
        return Contribution(value, ArrowVector(local, shared), ArrowMatrix(blocks, cross, corner))
