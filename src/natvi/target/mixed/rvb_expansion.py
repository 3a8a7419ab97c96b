"""Gaussian expansions of p(theta_i | theta_g, y_i): where the random effects of a mixed model lie given theta_g.

For one group log p(y_i, theta_i | theta_g) = sum_j psi_j(eta_ij) - theta_i' Omega theta_i / 2 + ..., with Omega = W W',
eta = base + Z theta_i and base = offset + X beta. A quadratic expansion of every psi about predictors eta_hat, with
s = psi' and h = -psi'' there (h = A''(eta_hat) for a canonical link), gives N(lambda_i, Lambda_i) with

    Lambda_i = (Omega + Z_i' h Z_i)^-1,    lambda_i = Lambda_i Z_i' { s + h (eta_hat - base) }.

RVB1 expands about predictors taken from the data, RVB2 about the mode of theta_i (Tan, 2021). Every family of the
house is log-concave in its predictor, so that h >= 0 and Lambda_i exists, whatever the link.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natvi.families.rows import take_extras
from natvi.linalg import GroupedRows
from natvi.linalg.local_global import block_product, inverse_root
from natvi.target.likelihood_rows import LikelihoodRows
from natvi.target.mixed.random_effects import RandomEffectsPrior

Rows = Float[Array, "c K"]
Effects = Float[Array, "r n"]
Blocks = Float[Array, "r r n"]
Rest = Float[Array, " k"]
RowSlopes = Callable[..., tuple[Rows, Rows]]
MOST_STEPS = 200  # Newton needs about four


class GroupLikelihood(eqx.Module):
    """The log-density of each group's rows and effects, from the rows' base and from rest = (dispersion, omega)."""

    likelihood: LikelihoodRows
    effects: RandomEffectsPrior
    row_slopes: RowSlopes | None = eqx.field(static=True, default=None)

    @property
    def design(self) -> GroupedRows:
        """The rows."""
        return self.likelihood.design

    def split(self, shared: Float[Array, " g"]) -> tuple[Rows, Rest]:
        """Return base = offset + X beta and rest = (dispersion, omega)."""
        p = self.likelihood.p
        return self.design.offset + jnp.tensordot(shared[:p], self.design.X, axes=1), shared[p:]

    def dispersion(self, rest: Rest) -> Float[Array, "*q"] | None:
        """Return the dispersion parameter, if there is one."""
        return take_extras(self.likelihood.family, rest, 0)

    def precision_factor(self, rest: Rest) -> Float[Array, "r r"]:
        """Return W."""
        # the prior looks omega up behind the p coefficients
        return self.effects.precision_factor(jnp.concatenate([jnp.zeros(self.likelihood.p, rest.dtype), rest]))

    def predictor(self, base: Rows, theta: Effects) -> Rows:
        """Return eta = base + Z theta."""
        return base + jnp.sum(self.design.Z * self.design.per_chunk(theta)[:, None], axis=0)

    def slopes(self, eta: Rows, rest: Rest) -> tuple[Rows, Rows]:
        """Return s = psi' and h = -psi'' of every row, by automatic differentiation unless they were handed in."""
        disp = self.dispersion(rest)
        if self.row_slopes is not None:
            s, h = self.row_slopes(self.likelihood.y, eta, disp)
            return self._weighted(s), self._weighted(h)
        slope = jax.grad(lambda x: jnp.sum(self.likelihood.row_values(x, disp)))
        s, bend = jax.jvp(slope, (eta,), (jnp.ones_like(eta),))
        return s, -bend

    def _weighted(self, rows: Rows) -> Rows:
        weight = self.likelihood.weight
        return jnp.where(self.design.filled, rows if weight is None else weight * rows, 0.0)

    def collect(self, s: Rows, h: Rows) -> tuple[Effects, Blocks]:
        """Return Z_i' s and Z_i' h Z_i, with one sum over chunks for both: scattering is what costs."""
        r, Z = self.effects.r, self.design.Z
        weighted = jnp.concatenate([s[None], Z * h])  # (1 + r, c, K)
        sums = self.design.per_group(jnp.sum(Z[:, None] * weighted[None], axis=2))
        return sums[:, 0], sums[:, 1 : 1 + r]

    def values(self, base: Rows, rest: Rest, theta: Effects) -> Float[Array, " n"]:
        """Return log p(y_i, theta_i | theta_g) of every group."""
        rows = self.likelihood.row_values(self.predictor(base, theta), self.dispersion(rest))
        W = self.precision_factor(rest)
        constant = jnp.sum(jnp.log(jnp.diagonal(W))) - 0.5 * self.effects.r * jnp.log(2 * jnp.pi)
        return self.design.per_group(jnp.sum(rows, axis=0)) + constant - 0.5 * jnp.sum((W.T @ theta) ** 2, axis=0)

    def gradient(self, base: Rows, rest: Rest, theta: Effects) -> Effects:
        """Return the gradient in theta, Z' s - Omega theta."""
        s, _ = self.slopes(self.predictor(base, theta), rest)
        W = self.precision_factor(rest)
        return self.design.per_group(jnp.sum(self.design.Z * s, axis=1)) - W @ (W.T @ theta)


class DataExpansion(eqx.Module):
    """About predictors eta_hat that depend on the data only: RVB1."""

    about: Rows  # eta_hat
    s: Rows | None  # stored where there is no dispersion for them to depend on
    h: Rows | None

    @classmethod
    def build(cls, groups: GroupLikelihood, about: Rows) -> "DataExpansion":
        """Take the slopes once and for all where the data alone decide them."""
        if groups.likelihood.family.has_dispersion:
            return cls(about, None, None)
        return cls(about, *groups.slopes(about, jnp.zeros(0)))

    def __call__(self, groups: GroupLikelihood, base: Rows, rest: Rest) -> tuple[Effects, Blocks]:
        """Return lambda and L, the lower triangular root of Lambda = L L'."""
        if self.s is not None and self.h is not None:
            s, h = self.s, self.h
        else:
            s, h = groups.slopes(self.about, rest)
        W = groups.precision_factor(rest)
        score, gram = groups.collect(s + h * (self.about - base), h)
        L = inverse_root(gram + (W @ W.T)[..., None])
        return _times_square(L, score), L


class ModeExpansion(eqx.Module):
    """About the mode of theta_i given theta_g, found from the expansion about the data: RVB2."""

    start: DataExpansion
    reach: Effects  # the largest |z_k| of each group's rows

    @classmethod
    def build(cls, groups: GroupLikelihood, about: Rows) -> "ModeExpansion":
        """Note how far the effects of each group move its predictors."""
        design = groups.design
        largest = jnp.max(jnp.where(design.filled, jnp.abs(design.Z), 0.0), axis=1)
        n = largest.shape[1] - design.extra.shape[0]
        reach = largest[:, :n].at[:, design.extra].max(largest[:, n:], indices_are_sorted=True)
        return cls(DataExpansion.build(groups, about), reach)

    def __call__(self, groups: GroupLikelihood, base: Rows, rest: Rest) -> tuple[Effects, Blocks]:
        """Return lambda, the mode, and L, the lower triangular root of Lambda = L L'; both depend on theta_g.

        The gradient u(theta, theta_g) vanishes at the mode, so by the implicit function theorem d mode = Lambda d u
        with theta held. The rule calls the mode again, which carries second and higher derivatives.
        """

        @jax.custom_jvp
        def mode(base: Rows, rest: Rest) -> Effects:
            return _climb(groups, base, rest, self.start(groups, base, rest)[0], self.reach)

        @mode.defjvp
        def _(primals: tuple[Rows, Rest], tangents: tuple[Rows, Rest]) -> tuple[Effects, Effects]:
            theta = mode(*primals)
            _, L = _gradient_and_root(groups, *primals, theta)
            _, du = jax.jvp(lambda base, rest: groups.gradient(base, rest, theta), primals, tangents)
            return theta, _times_square(L, du)

        found = mode(base, rest)
        return found, _gradient_and_root(groups, base, rest, found)[1]


def _gradient_and_root(groups: GroupLikelihood, base: Rows, rest: Rest, theta: Effects) -> tuple[Effects, Blocks]:
    """Return u = Z' s - Omega theta and the root of (Omega + Z' h Z)^-1 at any theta."""
    s, h = groups.slopes(groups.predictor(base, theta), rest)
    W = groups.precision_factor(rest)
    omega = W @ W.T
    score, gram = groups.collect(s, h)
    return score - omega @ theta, inverse_root(gram + omega[..., None])


def _climb(groups: GroupLikelihood, base: Rows, rest: Rest, start: Effects, reach: Effects) -> Effects:
    """Find the modes by damped Newton steps.

    Let a full step move a group's predictors by d at most. Where the relative change of h per unit of eta is at most
    one, as for log and logit links, moving them by u at most raises the log-density as long as e^u - 1 < (d + 1) u;
    u = min(d, 1 + log d) satisfies this for every d, and is the full step near the mode.
    """
    tolerance = jnp.finfo(base.dtype).eps ** 0.25  # of a step: Newton squares the error that is left

    def step(state: _Climb) -> _Climb:
        u, L = _gradient_and_root(groups, base, rest, state.theta)
        move = _times_square(L, u)
        d = jnp.sum(reach * jnp.abs(move), axis=0)
        short = (1.0 + jnp.log(jnp.maximum(d, 1.0))) / jnp.maximum(d, 1.0)
        return _Climb(state.theta + short * move, jnp.max(d), state.count + 1)

    def unfinished(state: _Climb) -> Bool[Array, ""]:
        return (state.largest > tolerance) & (state.count < MOST_STEPS)

    first = _Climb(start, jnp.asarray(jnp.inf, base.dtype), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, step, first).theta


class _Climb(NamedTuple):
    theta: Effects
    largest: Float[Array, ""]  # change of a predictor in the last step
    count: Int[Array, ""]


def _times_square(L: Blocks, x: Effects) -> Effects:
    """Return Lambda x = L L' x."""
    return block_product(L, block_product(L.swapaxes(0, 1), x))
