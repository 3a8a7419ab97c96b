"""The largest factor's effects integrated out of a crossed model, or drawn, given everything else.

Given sds, correlations, dispersion, coefficients and the effects of the smaller factors, the levels of the largest
factor are independent: what is left is a model with one factor, whose offset holds what is given. So
log p(y, v, beta, hyper) is a sum of integrals of one or two dimensions (`marginal`), and u given all that can be drawn
exactly (`conditional`).
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.linalg import ArrowVector
from natvi.target.likelihood_rows import LikelihoodRows
from natvi.target.mixed.conditional import MOST_EFFECTS, draw_given
from natvi.target.mixed.crossed import CrossedTarget
from natvi.target.mixed.crossed_given import CrossedGiven
from natvi.target.mixed.marginal import group_log_likelihoods
from natvi.target.mixed.random_effects import RandomEffectsPrior
from natvi.target.term import SumOfTerms


class SeveralTerms(RandomEffectsPrior):
    """The prior of the effects of several terms of one factor, one after the other: W is block diagonal."""

    parts: tuple[RandomEffectsPrior, ...] = eqx.field(default=())

    def precision_factor(self, shared: Float[Array, " g"]) -> Float[Array, "r r"]:
        """Return W from the shared coordinates."""
        return jax.scipy.linalg.block_diag(*(part.precision_factor(shared) for part in self.parts))


def one_factor(target: CrossedTarget, eta: Float[Array, "c C"] | float = 0.0) -> SumOfTerms:
    """Return rows and effects of the largest factor alone, `eta` added to the rows' offset."""
    design = target.design.rows
    design = replace(design, offset=design.offset + eta)
    rows = LikelihoodRows(design, target.y, target.family, 0, target.weight, target.constant)
    inside = tuple(term.prior for term in target.effects if term.largest)
    prior = inside[0] if len(inside) == 1 else SeveralTerms(target.num_local, inside[0].start, parts=inside)
    # terms of one factor stand one after the other among the local effects, in this order
    return SumOfTerms((rows, prior), ())


def has_gaussian_rows(target: CrossedTarget) -> bool:
    """Whether everything but the hyper-parameters is Gaussian given these, so that the inner bound is exact."""
    return bool(getattr(target.family, "quadratic", False))


def can_leave_out(target: CrossedTarget) -> bool:
    """Whether effects of the largest factor can be integrated out and drawn; Gaussian rows need neither."""
    return not has_gaussian_rows(target) and target.num_local <= MOST_EFFECTS


def log_density(given: CrossedGiven, shared: Float[Array, " G"], near: Float[Array, "r n"]) -> Float[Array, ""]:
    """Return log p(y, v, beta, hyper), the largest factor's effects integrated out by adaptive quadrature.

    Args:
        given: The model with its hyper-parameters.
        shared: (beta, v).
        near: A guess of the effects that are integrated out; it decides nothing but the time needed.
    """
    whole, p = given.whole, given.whole.p
    alone, base = _given_rest(given, shared)
    value = jnp.sum(group_log_likelihoods(alone, base, near)) + whole.constant
    theta = ArrowVector(near, jnp.concatenate([base, shared[p:]]))
    value += sum((term.value(theta) for term in whole.effects if not term.largest), jnp.zeros(()))
    point = ArrowVector(near[:, :0], base)
    return value + sum((term.value(point) for term in whole.shared), jnp.zeros(()))


def draw_largest(
    given: CrossedGiven, shared: Float[Array, " G"], near: Float[Array, "r n"], key: PRNGKeyArray
) -> Float[Array, "r n"]:
    """Draw the largest factor's effects given (beta, v) and the hyper-parameters, exactly."""
    alone, base = _given_rest(given, shared)
    return draw_given(alone, base, near, key)


def _given_rest(given: CrossedGiven, shared: Float[Array, " G"]) -> tuple[SumOfTerms, Float[Array, " b"]]:
    p = given.whole.p
    alone = one_factor(given.whole, given.whole.design.crossed(shared[p:]))
    return alone, jnp.concatenate([shared[:p], given.hyper])
