"""Reparametrized variational Bayes (Tan, 2021; paper, Section 8.5): a mixed model in other coordinates.

    theta_i = L_i(theta_g) tilde_i + lambda_i(theta_g)
    log p(tilde, theta_g) = log p(theta, theta_g) + sum_i log |L_i|

with N(lambda_i, L_i L_i') an expansion of p(theta_i | theta_g, y_i), so that tilde_i is close to standard normal and
hardly depends on theta_g. Then a Gaussian with independent blocks (`LocalGlobalFactor`, Algorithm 1S) is a good
approximation. RVB1 expands about predictors of the data, RVB2 about the mode of theta_i. Densities keep all constants:
the lower bounds of RVB1, RVB2 and of the model itself (GVA) can be compared.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.linalg import ArrowVector, small_blocks
from natvi.linalg.local_global import LocalGlobalMatrix, block_diagonal, block_product, matrix_product
from natvi.target.likelihood_rows import LikelihoodRows
from natvi.target.mixed.random_effects import RandomEffectsPrior
from natvi.target.mixed.rvb_expansion import DataExpansion, GroupLikelihood, ModeExpansion, RowSlopes
from natvi.target.term import SumOfTerms, Term


class ReparametrizedEffects(eqx.Module):
    """The log-density of (tilde, theta_g), on an ArrowVector whose local part is tilde `(r, n)`."""

    groups: GroupLikelihood
    alone: tuple[Term, ...]  # terms of theta_g
    expansion: DataExpansion | ModeExpansion

    @property
    def grouped(self) -> tuple[LikelihoodRows, RandomEffectsPrior]:
        """The terms over groups of the original model."""
        return self.groups.likelihood, self.groups.effects

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point, the Jacobian included."""
        return jnp.sum(self._by_group(theta.local, *self.groups.split(theta.shared))) + self._shared_value(theta.shared)

    def hessian(self, theta: ArrowVector, factor: object = None) -> LocalGlobalMatrix:
        """Return the local and shared blocks of the Hessian at one point, whatever the factor."""
        base, rest = self.groups.split(theta.shared)
        centre, L = self.expansion(self.groups, base, rest)
        effects = centre + block_product(L, theta.local)
        # in tilde_i at fixed theta_g:  L_i' (-Z_i' h Z_i - Omega) L_i
        _, h = self.groups.slopes(self.groups.predictor(base, effects), rest)
        W = self.groups.precision_factor(rest)
        curvature = -self.groups.collect(h, h)[1] - (W @ W.T)[..., None]
        local = matrix_product(L.swapaxes(0, 1), matrix_product(curvature, L))
        shared = jax.hessian(lambda shared: self.value(ArrowVector(theta.local, shared)))(theta.shared)
        return LocalGlobalMatrix(local, shared)

    def group_gradients(self, theta: ArrowVector) -> ArrowVector:
        """Return each group's gradient, a share 1/n of the terms of theta_g alone included: the rows of J.

        Local parts `(r, n)`, shared parts `(g, n)` group by group; summed over groups they are the gradient.
        """
        return self.value_and_group_gradients(theta)[1]

    def value_and_group_gradients(self, theta: ArrowVector) -> tuple[Float[Array, ""], ArrowVector]:
        """Return the log-density and each group's gradient, with one search for the modes."""
        n = theta.local.shape[1]
        base, rest = self.groups.split(theta.shared)

        # one pass back for the rows' predictors, hence for beta; one forward for each of (dispersion, omega)
        def total(local: Array, base: Array) -> tuple[Array, tuple[Array, Array]]:
            by_group, linear = jax.linearize(lambda rest: self._by_group(local, base, rest), rest)
            return jnp.sum(by_group), (by_group, jax.vmap(linear)(jnp.eye(rest.shape[0], dtype=rest.dtype)))

        (local, by_row), (by_group, others) = jax.grad(total, argnums=(0, 1), has_aux=True)(theta.local, base)
        design = self.groups.design
        shared = jnp.concatenate([design.per_group(jnp.sum(design.X * by_row, axis=1)), others])
        alone, slope = jax.value_and_grad(self._shared_value)(theta.shared)
        return jnp.sum(by_group) + alone, ArrowVector(local, shared + slope[:, None] / n)

    def to_original(self, theta: ArrowVector) -> ArrowVector:
        """Return (theta_1, ..., theta_n, theta_g) from (tilde, theta_g)."""
        centre, L = self.expansion(self.groups, *self.groups.split(theta.shared))
        return ArrowVector(centre + block_product(L, theta.local), theta.shared)

    def from_original(self, theta: ArrowVector) -> ArrowVector:
        """Return (tilde, theta_g) from (theta_1, ..., theta_n, theta_g): tilde_i = L_i^-1 (theta_i - lambda_i)."""
        centre, L = self.expansion(self.groups, *self.groups.split(theta.shared))
        return ArrowVector(small_blocks.solve_lower(L, theta.local - centre), theta.shared)

    def _by_group(
        self, tilde: Float[Array, "r n"], base: Float[Array, "c K"], rest: Float[Array, " k"]
    ) -> Float[Array, " n"]:
        centre, L = self.expansion(self.groups, base, rest)
        effects = centre + block_product(L, tilde)
        return self.groups.values(base, rest, effects) + jnp.sum(jnp.log(block_diagonal(L)), axis=0)

    def _shared_value(self, shared: Float[Array, " g"]) -> Float[Array, ""]:
        """Return the terms of theta_g alone and the constant of the likelihood."""
        nowhere = ArrowVector(jnp.zeros((self.groups.effects.r, 0), shared.dtype), shared)
        return sum((term.value(nowhere) for term in self.alone), jnp.asarray(self.groups.likelihood.constant))


def rvb1(
    target: SumOfTerms, predictor: Float[Array, "c K"] | None = None, row_slopes: RowSlopes | None = None
) -> ReparametrizedEffects:
    """Return the model reparametrized about predictors eta_hat that depend on the data only.

    Args:
        target: A mixed model, as `build_target` makes it.
        predictor: eta_hat of every cell, by default the family's rough predictor `family.start(y)`. The paper takes the
            posterior mean under Jeffreys' prior (`natvi.models.mixed.noisy.row_expansion`). For Gaussian responses the
            expansion is exact about any predictor.
        row_slopes: (y, eta, dispersion or None) -> the first and minus the second derivative of log p of every row, by
            default by automatic differentiation.

    Returns:
        The target of (tilde, theta_g).
    """
    groups = group_likelihood(target, row_slopes)
    return ReparametrizedEffects(groups, target.shared, DataExpansion.build(groups, _predictor(groups, predictor)))


def rvb2(
    target: SumOfTerms, predictor: Float[Array, "c K"] | None = None, row_slopes: RowSlopes | None = None
) -> ReparametrizedEffects:
    """Return the model reparametrized about the mode of each theta_i given theta_g.

    Args:
        target: A mixed model, as `build_target` makes it.
        predictor: Rough predictors, as for `rvb1`; they decide only where the search for the modes starts.
        row_slopes: As for `rvb1`.

    Returns:
        The target of (tilde, theta_g).
    """
    groups = group_likelihood(target, row_slopes)
    return ReparametrizedEffects(groups, target.shared, ModeExpansion.build(groups, _predictor(groups, predictor)))


def _predictor(groups: GroupLikelihood, predictor: Float[Array, "c K"] | None) -> Float[Array, "c K"]:
    rows = groups.likelihood
    about = rows.family.start(rows.y) if predictor is None else predictor
    if about.shape != rows.y.shape:
        raise ValueError(f"predictor must have one number for each cell, shape {rows.y.shape}; got {about.shape}.")
    return about


def group_likelihood(target: SumOfTerms, row_slopes: RowSlopes | None = None) -> GroupLikelihood:
    """Return the groups of a mixed model, or explain what RVB needs."""
    if len(target.grouped) == 2:
        likelihood, effects = target.grouped
        if isinstance(likelihood, LikelihoodRows) and isinstance(effects, RandomEffectsPrior):
            return GroupLikelihood(likelihood, effects, row_slopes)
    came = ", ".join(type(term).__name__ for term in target.grouped)
    raise ValueError(
        "Reparametrized variational Bayes needs a mixed model: rows (LikelihoodRows) and a prior of random effects "
        f"(RandomEffectsPrior), in this order; got ({came}). Fit other targets as they are, with Algorithm 2S."
    )
