"""What a term promises, and the sum of terms that makes a target.

A term is a function of a low-dimensional linear image of theta. `expected` gives its expectation under a
Gaussian together with E grad and E hess (Bonnet's and Price's theorems: the first and second derivative of
the expectation in the mean), on the arrow pattern. A term touches the local coordinates and one contiguous
range of the shared ones, which starts at `start`. Very many groups are worked through in blocks: time per group
stays the same from thousands to millions, and no array is as long as the data times the coordinates.
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natvi.linalg import ArrowMatrix, ArrowVector, GroupedRows
from natvi.linalg.grouped_rows import RowMoments
from natvi.over_hosts import add_up, first_only, in_blocks
from natvi.target.expected import Expected
from natvi.target.point_mass import PointMass
from natvi.typing import Factor, Hessian

BLOCK_GROUPS = 12288  # small enough for the cache, large enough to keep two threads busy
LEAST_BLOCKS = 2


@runtime_checkable
class SharedMarginals(Protocol):
    """What a term of theta_g alone asks of a Gaussian."""

    @property
    def mean(self) -> ArrowVector:
        """The mean."""
        ...

    def shared_variances(self) -> Float[Array, " g"]:
        """Return the variances of theta_g."""
        ...


@runtime_checkable
class Marginals(Protocol):
    """What a term asks of a Gaussian."""

    @property
    def mean(self) -> ArrowVector:
        """The mean."""
        ...

    def row_moments(self, design: GroupedRows, with_shared: tuple[int, ...]) -> RowMoments:
        """Return the marginal moments of every row of a design."""
        ...

    def group_moments(self, start: int, stop: int) -> tuple[Float[Array, "k n"], Float[Array, "k k n"]]:
        """Return mean and covariance of (theta_i, theta_g[start:stop]) for every group."""
        ...

    def shared_variances(self) -> Float[Array, " g"]:
        """Return the variances of theta_g."""
        ...

    def shared_covariance(self) -> Float[Array, "g g"]:
        """Return the covariance of theta_g."""
        ...

    def block(self, start: Int[Array, ""] | int, size: int) -> "Marginals":
        """Return the Gaussian of the groups `start` to `start + size` and the shared coordinates."""
        ...


@runtime_checkable
class HasMarginals(Protocol):
    """A Gaussian of groups and shared coordinates."""

    def marginals(self) -> Marginals:
        """Return what a term asks for."""
        ...


@runtime_checkable
class Term(Protocol):
    """A summand of the log-density."""

    @property
    def start(self) -> int:
        """The first shared coordinate it touches."""
        ...

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the term at one point."""
        ...

    def expected(self, gaussian: Marginals) -> Expected:
        """Return its expectation with E grad and E hess; their shared parts cover the term's own range only."""
        ...


@runtime_checkable
class SharedTerm(Protocol):
    """A summand of the log-density that is a function of theta_g alone."""

    @property
    def start(self) -> int:
        """The first shared coordinate it touches."""
        ...

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the term at one point."""
        ...

    def expected(self, gaussian: SharedMarginals) -> Expected:
        """Return its expectation with E grad and E hess, over the term's own range."""
        ...


@runtime_checkable
class GroupedTerm(Term, Protocol):
    """A term that is itself a sum over groups, so that it can be worked through in blocks of groups."""

    def num_simple(self, num_groups: int) -> int:
        """Return how many groups, from the first on, can be cut out in blocks."""
        ...

    def block(self, start: Int[Array, ""] | int, size: int) -> "GroupedTerm":
        """Return the part that belongs to the groups `start` to `start + size`."""
        ...

    def rest(self, start: int) -> "GroupedTerm":
        """Return the part that belongs to the groups from `start` on."""
        ...

    def group_gradients(self, theta: ArrowVector) -> ArrowVector:
        """Return each group's gradient in its local `(r, n)` and in the term's shared coordinates `(k, n)`."""
        ...


class SumOfTerms(eqx.Module):
    """The log-density of a hierarchical model: terms that run over groups, and terms of theta_g alone."""

    grouped: tuple[GroupedTerm, ...]
    shared: tuple[Term, ...]

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return sum((term.value(theta) for term in (*self.grouped, *self.shared)), jnp.zeros(()))

    def hessian(self, theta: ArrowVector, factor: Factor | None = None) -> Hessian:
        """Return the Hessian at one point, E hess under a point mass: on the arrow, or on the pattern within it."""
        arrow = self.expected(PointMass(theta)).hess
        return arrow if factor is None else factor.restrict(arrow)

    def group_gradients(self, theta: ArrowVector) -> ArrowVector:
        """Return each group's gradient: of its terms, and of a share 1/n of the terms of theta_g alone.

        Local parts `(r, n)`, shared parts `(g, n)` group by group; summed over groups they are the gradient.
        """
        (r, n), g = theta.local.shape, theta.shared.shape[0]
        alone = jax.grad(lambda t: sum((term.value(t) for term in self.shared), jnp.zeros(())))(theta)
        local, shared = jnp.zeros((r, n)), jnp.broadcast_to(alone.shared[:, None] / n, (g, n))
        for term in self.grouped:
            part = term.group_gradients(theta)
            local = local + part.local
            shared = shared.at[term.start : term.start + part.shared.shape[0]].add(part.shared)
        return ArrowVector(local, shared)

    def to_original(self, theta: ArrowVector) -> ArrowVector:
        """Return theta as it is: the model is not reparametrized."""
        return theta

    def value_and_group_gradients(self, theta: ArrowVector) -> tuple[Float[Array, ""], ArrowVector]:
        """Return the log-density and each group's gradient."""
        return self.value(theta), self.group_gradients(theta)

    def expected(self, gaussian: HasMarginals) -> Expected:
        """Return E log-density, E grad and E hess under the Gaussian, exactly."""
        q = gaussian.marginals()
        num_groups = q.mean.local.shape[1]
        simple = min(term.num_simple(num_groups) for term in self.grouped)
        num_blocks = simple // BLOCK_GROUPS if simple >= LEAST_BLOCKS * BLOCK_GROUPS else 0
        total = first_only(_sum_terms(self.shared, q.block(0, 0)))
        if num_blocks == 0:
            return _over_hosts(_join(total, _sum_terms(self.grouped, q)))
        done = num_blocks * BLOCK_GROUPS
        rest = tuple(term.rest(done) for term in self.grouped)
        with in_blocks():
            total = _join(total, _sum_terms(rest, q.block(done, num_groups - done)))

        def add_block(k: Array, total: Expected) -> Expected:
            start = k * BLOCK_GROUPS
            terms = tuple(term.block(start, BLOCK_GROUPS) for term in self.grouped)
            with in_blocks():
                return _put(total, _sum_terms(terms, q.block(start, BLOCK_GROUPS)), start)

        return _over_hosts(jax.lax.fori_loop(0, num_blocks, add_block, _room_in_front(total, done)))


def _sum_terms(terms: tuple[Term, ...], gaussian: Marginals) -> Expected:
    mean = gaussian.mean
    (r, n), g = mean.local.shape, mean.shared.shape[0]
    value, local, shared = jnp.zeros(()), jnp.zeros((r, n)), jnp.zeros(g)
    blocks, cross, corner = jnp.zeros((r, r, n)), jnp.zeros((g, r, n)), jnp.zeros((g, g))
    for term in terms:
        part = term.expected(gaussian)
        own = slice(term.start, term.start + part.grad.shared.shape[0])
        value += part.value
        local, shared = local + part.grad.local, shared.at[own].add(part.grad.shared)
        blocks, cross = blocks + part.hess.local, cross.at[own].add(part.hess.cross)
        corner = corner.at[own, own].add(part.hess.shared)
    return Expected(value, ArrowVector(local, shared), ArrowMatrix(blocks, cross, corner))


def _join(a: Expected, b: Expected) -> Expected:
    """Add the shared parts; `a` has no groups, so the local parts are those of `b`."""
    return Expected(
        a.value + b.value,
        ArrowVector(b.grad.local, a.grad.shared + b.grad.shared),
        ArrowMatrix(b.hess.local, b.hess.cross, a.hess.shared + b.hess.shared),
    )


def _over_hosts(part: Expected) -> Expected:
    """Sum what is shared over the groups of all processes."""
    value, grad, hess = add_up((part.value, part.grad.shared, part.hess.shared))
    return Expected(value, ArrowVector(part.grad.local, grad), ArrowMatrix(part.hess.local, part.hess.cross, hess))


def _room_in_front(total: Expected, size: int) -> Expected:
    """Put `size` groups of zeros before the groups of a contribution."""

    def pad(a: Array) -> Array:
        return jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(size, 0)])

    value, grad, hess = total
    return Expected(
        value,
        ArrowVector(pad(grad.local), grad.shared),
        ArrowMatrix(pad(hess.local), pad(hess.cross), hess.shared),
    )


def _put(total: Expected, part: Expected, start: Array) -> Expected:
    """Write the local parts of a block into their place and add its shared parts."""

    def write(all_groups: Array, block: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(all_groups, block, start, axis=-1)

    return Expected(
        total.value + part.value,
        ArrowVector(write(total.grad.local, part.grad.local), total.grad.shared + part.grad.shared),
        ArrowMatrix(
            write(total.hess.local, part.hess.local),
            write(total.hess.cross, part.hess.cross),
            total.hess.shared + part.hess.shared,
        ),
    )
