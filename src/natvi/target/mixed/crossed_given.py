"""A crossed model given sds, correlations and dispersion: coefficients and effects alone.

Given omega the prior of the effects is a plain Gaussian, and for the usual families the bound is concave in mean and
factor. The derivative of the best bound in omega is that of the expectation with the Gaussian held fixed.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.families.rows import PredictorMoments, take_extras
from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedMatrix
from natvi.target.expected import Expected
from natvi.target.mixed.crossed import CrossedTarget, TermEffects
from natvi.target.point_mass import PointMass


class CrossedGiven(eqx.Module):
    """log p(y, u, v, beta, omega) as a function of (u, beta, v); `hyper` holds the dispersion, if any, and omega."""

    whole: CrossedTarget
    hyper: Float[Array, " h"]

    @property
    def family(self) -> Any:
        """The response distribution."""
        return self.whole.family

    def terms(self) -> list[TermEffects]:
        """Return the random terms, where their effects lie without `hyper` before them."""
        gap = self.hyper.shape[0]
        return [
            term if term.largest else TermEffects(term.prior, term.num_levels, term.first - gap, False)
            for term in self.whole.effects
        ]

    def expected(self, gaussian: Any) -> Expected:
        """Return E log-density, E grad and E hess under a Gaussian of (u, beta, v)."""
        return self.expected_and_score(gaussian)[0]

    def expected_and_score(self, q: Any) -> tuple[Expected, Float[Array, " h"]]:
        """Return the expectation, and its derivative in `hyper`."""
        whole, p = self.whole, self.whole.p
        found, zero = q.row_moments(whole.design, ()), jnp.zeros(())
        moments = PredictorMoments(found.mean, found.variance)
        if whole.family.has_dispersion:
            k, disp = whole.family.num_extras, take_extras(whole.family, self.hyper, 0)
            nothing = jnp.zeros_like(found.mean)
            none = (zero, nothing) if k == 1 else (jnp.zeros((k, k)), jnp.zeros((k, *nothing.shape)))
            moments = PredictorMoments(found.mean, found.variance, disp, *none)
        rows = whole.row_expectations(moments)
        total = Expected(
            jnp.sum(rows.value) + whole.constant,
            whole.design.transposed_product(rows.d_eta, p),
            whole.design.gram(rows.d_eta_eta, p),
        )
        score = jnp.zeros_like(self.hyper)
        if rows.d_disp is not None:
            k = whole.family.num_extras
            score = score.at[:k].add(jnp.sum(rows.d_disp.reshape(k, -1), axis=1))
        for term in self.terms():
            total, slope = self._add_prior(total, q, term)
            start = term.prior.start - p
            score = score.at[start : start + slope.shape[0]].add(slope)
        return self._add_shared(total, q, score)

    def _add_prior(self, total: Expected, q: Any, term: TermEffects) -> tuple[Expected, Float[Array, " k"]]:
        """Add the prior of a term's effects, omega being a point."""
        mean, covariance = term.moments(q, 0, 0)
        omega = self.hyper[term.prior.start - self.whole.p : term.prior.stop - self.whole.p]
        k, n = omega.shape[0], mean.shape[1]
        mean = jnp.concatenate([mean, jnp.broadcast_to(omega[:, None], (k, n))])
        covariance = jnp.pad(covariance, ((0, k), (0, k), (0, 0)))
        part = term.prior.expected_of(mean, covariance)
        slope = part.grad.shared
        hess = part.hess._replace(cross=part.hess.cross[:0], shared=part.hess.shared[:0, :0])
        alone = Expected(part.value, ArrowVector(part.grad.local, slope[:0]), hess)
        return term.put(total, alone, slice(0, 0)), slope

    def _add_shared(self, total: Expected, q: Any, score: Float[Array, " h"]) -> tuple[Expected, Float[Array, " h"]]:
        """Add the priors of coefficients and `hyper`: those of the coefficients are normals."""
        whole, p = self.whole, self.whole.p
        value, (local, shared), hess = total
        point = PointMass(ArrowVector(jnp.zeros((local.shape[0], 0)), jnp.append(q.mean.shared[:p], self.hyper)))
        S, variances = hess.shared, jnp.diagonal(q.covariance)[:p]
        for term in whole.shared:
            part = term.expected(point)
            own = jnp.arange(part.grad.shared.shape[0]) + term.start
            grad = jnp.zeros(whole.b).at[own].add(part.grad.shared)
            bend = jnp.zeros((whole.b, whole.b)).at[own[:, None], own].add(part.hess.shared)[:p, :p]
            # quadratic in the coefficients: E f = f(mean) + tr(hess Sigma) / 2, and their normals are independent
            value = value + part.value + 0.5 * jnp.sum(jnp.diagonal(bend) * variances)
            shared = shared.at[:p].add(grad[:p])
            S = S.at[:p, :p].add(bend)
            score = score + grad[p:]
        return Expected(value, ArrowVector(local, shared), hess._replace(shared=S)), score

    def prior_precision(self, hess: BlockedMatrix) -> BlockedMatrix:
        """Return the precision of the effects' prior on the pattern of a Hessian."""
        A, B, pairs, S = jax.tree.map(jnp.zeros_like, hess)
        shared = jnp.concatenate([jnp.zeros(self.whole.p), self.hyper])
        for term in self.terms():
            W, r, n = term.prior.precision_factor(shared), term.prior.r, term.num_levels
            precision = jnp.broadcast_to((W @ W.T)[..., None], (r, r, n))
            if term.largest:
                A = A.at[term.own, term.own].add(precision)
            else:
                at = term.first + jnp.arange(r * n).reshape(r, n)
                S = S.at[at[:, None], at[None]].add(precision)
        return BlockedMatrix(A, B, pairs, S)

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point (u, beta, v)."""
        p = self.whole.p
        shared = jnp.concatenate([theta.shared[:p], self.hyper, theta.shared[p:]])
        return self.whole.value(ArrowVector(theta.local, shared))
