"""The log-density of a model with crossed or nested factors, in expectation on the blocked pattern.

Shared coordinates are (beta, dispersion, omega of every term, effects of the smaller factors); the effects of the
largest factor are the local ones. Every random term has the same prior as with one factor, only its effects lie
elsewhere: rows of the local coordinates, or a range of the shared ones.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.families.rows import PredictorMoments, RowExpectation, RowFamily, take_extras
from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedMatrix, CrossPattern
from natvi.linalg.crossed.rows import CrossedRows
from natvi.target.expected import Expected
from natvi.target.mixed.random_effects import RandomEffectsPrior
from natvi.target.term import SharedTerm


class _Base(NamedTuple):
    """The first shared coordinates alone, without levels, as the priors of theta_g ask for them."""

    mean: ArrowVector
    covariance: Float[Array, "b b"]

    def shared_variances(self) -> Float[Array, " b"]:
        """Return the variances."""
        return jnp.diagonal(self.covariance)

    def shared_covariance(self) -> Float[Array, "b b"]:
        """Return the covariance."""
        return self.covariance


class TermEffects(eqx.Module):
    """The effects of one random term.

    Attributes:
        prior: Of its effects given omega.
        num_levels: The levels of its factor.
        first: Where the effects begin: a row of the local coordinates, or a shared coordinate.
        largest: Whether its factor is the largest one, whose effects are local.
    """

    prior: RandomEffectsPrior
    num_levels: int = eqx.field(static=True)
    first: int = eqx.field(static=True)
    largest: bool = eqx.field(static=True)

    @property
    def own(self) -> slice:
        """Where the effects lie."""
        return slice(self.first, self.first + self.prior.r * (1 if self.largest else self.num_levels))

    def take(self, theta: ArrowVector) -> Float[Array, "r n"]:
        """Return the effects at a point."""
        if self.largest:
            return theta.local[self.own]
        return theta.shared[self.own].reshape(self.prior.r, self.num_levels)

    def moments(self, q: Any, start: int, stop: int) -> tuple[Any, Any]:
        """Return mean and covariance of (effects, theta_g[start:stop]) of every level."""
        if not self.largest:
            return q.effect_moments(self.first, (self.prior.r, self.num_levels), start, stop)
        mean, covariance = q.level_moments(start, stop)
        r = q.mean.local.shape[0]
        at = jnp.array([*range(r)[self.own], *range(r, r + stop - start)])
        return mean[at], covariance[at[:, None], at[None]]

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log prior at one point."""
        return self.prior.value(ArrowVector(self.take(theta), theta.shared))

    def add_expected(self, total: Expected, q: Any) -> Expected:
        """Add the expectation of the log prior to what there is."""
        start, stop = self.prior.start, self.prior.stop
        part = self.prior.expected_of(*self.moments(q, start, stop))
        return self.put(total, part, slice(start, stop))

    def put(self, total: Expected, part: Expected, omega: slice) -> Expected:
        """Add derivatives in (effects, omega) where they belong."""
        value, (local, shared), (A, B, pairs, S) = total
        shared = shared.at[omega].add(part.grad.shared)
        S = S.at[omega, omega].add(part.hess.shared)
        if self.largest:
            local = local.at[self.own].add(part.grad.local)
            A = A.at[self.own, self.own].add(part.hess.local)
            B = B.at[omega, self.own].add(part.hess.cross)
        else:
            r, n = self.prior.r, self.num_levels
            at = self.first + jnp.arange(r * n).reshape(r, n)
            shared = shared.at[at].add(part.grad.local)
            S = S.at[at[:, None], at[None]].add(part.hess.local)
            flat = part.hess.cross.reshape(-1, r * n)
            S = S.at[omega, self.own].add(flat).at[self.own, omega].add(flat.T)
        hess = BlockedMatrix(A, B, pairs, S)
        return Expected(value + part.value, ArrowVector(local, shared), hess)


class CrossedTarget(eqx.Module):
    """Rows, the prior of every random term, and the priors of coefficients, dispersion and omega.

    `b` shared coordinates come before the effects of the smaller factors.
    """

    design: CrossedRows
    y: Float[Array, "c C"]
    weight: Float[Array, "c C"] | None
    constant: Float[Array, ""]
    effects: tuple[TermEffects, ...]
    shared: tuple[SharedTerm, ...]
    pattern: CrossPattern
    family: RowFamily = eqx.field(static=True)
    b: int = eqx.field(static=True)

    @property
    def p(self) -> int:
        """The number of coefficients."""
        return self.design.rows.X.shape[0]

    @property
    def num_local(self) -> int:
        """The number of effects of each level of the largest factor."""
        return sum(term.prior.r for term in self.effects if term.largest)

    @property
    def num_levels(self) -> int:
        """The number of levels of the largest factor."""
        return next(term.num_levels for term in self.effects if term.largest)

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        disp = take_extras(self.family, theta.shared, self.p)
        rows = jnp.sum(self.weighted(self.family.log_density(self.y, self.design.predictor(theta), disp)))
        base = ArrowVector(theta.local, theta.shared[: self.b])
        terms = [term.value(theta) for term in self.effects] + [term.value(base) for term in self.shared]
        return sum(terms, rows + self.constant)

    def weighted(self, rows: Float[Array, "*q c C"]) -> Float[Array, "*q c C"]:
        """Return what belongs to rows, times their weights, and 0 in cells without a row."""
        weighted = rows if self.weight is None else self.weight * rows
        return jnp.where(self.design.rows.filled, weighted, 0.0)

    def row_expectations(self, moments: PredictorMoments) -> RowExpectation:
        """Return every row's expected log-likelihood with its derivatives."""
        return jax.tree.map(self.weighted, self.family.expected(self.y, moments))

    def expected(self, gaussian: Any) -> Expected:
        """Return E log-density, E grad and E hess under the Gaussian, exactly."""
        q = gaussian
        total = self.expected_rows(q)
        for term in self.effects:
            total = term.add_expected(total, q)
        value, grad, hess = total
        shared, S = grad.shared, hess.shared
        r = grad.local.shape[0]
        base = _Base(ArrowVector(jnp.zeros((r, 0)), q.mean.shared[: self.b]), q.shared_covariance())
        for term in self.shared:
            part = term.expected(base)
            own = slice(term.start, term.start + part.grad.shared.shape[0])
            value, shared = value + part.value, shared.at[own].add(part.grad.shared)
            S = S.at[own, own].add(part.hess.shared)
        return Expected(value, ArrowVector(grad.local, shared), hess._replace(shared=S))

    def predictor_moments(self, q: Any) -> PredictorMoments:
        """Return the law of every row's predictor, with the dispersion's, under a Gaussian."""
        p, k = self.p, self.family.num_extras
        found = q.row_moments(self.design, tuple(range(p, p + k)))
        if not k:
            return PredictorMoments(found.mean, found.variance)
        variance, disp = q.shared_covariance()[p : p + k, p : p + k], take_extras(self.family, q.mean.shared, p)
        both = (variance[0, 0], found.covariance[0]) if k == 1 else (variance, found.covariance)
        return PredictorMoments(found.mean, found.variance, disp, *both)

    def expected_rows(self, q: Any) -> Expected:
        """Return what the rows contribute to the expectation, on the whole pattern."""
        design, p, k = self.design, self.p, self.family.num_extras
        rows = self.row_expectations(self.predictor_moments(q))
        grad, hess = design.transposed_product(rows.d_eta, self.b), design.gram(rows.d_eta_eta, self.b)
        if rows.d_disp is not None and rows.d_eta_disp is not None and rows.d_disp_disp is not None:
            slopes = jnp.sum(rows.d_disp.reshape(k, -1), axis=1)
            grad = grad._replace(shared=grad.shared.at[p : p + k].add(slopes))
            own = jnp.sum(rows.d_disp_disp.reshape(k, k, -1), axis=2)
            hess = design.with_dispersion(hess, rows.d_eta_disp.reshape(k, *self.y.shape), own)
        return Expected(jnp.sum(rows.value) + self.constant, grad, hess)
