"""The random effects integrated out: log p(y, theta_g) of a mixed model by adaptive Gauss-Hermite quadrature.

For each group the mode of f_i(theta_i) = log p(y_i, theta_i | theta_g) is found by Newton's method and the nodes are
laid around it with the curvature there. The integral does not depend on where the nodes lie, so mode and curvature
count as constants when the result is differentiated in theta_g. For Gaussian rows one node, the mode, is exact: there
the curvature is differentiated too, and the mode need not be, since f_i is flat at it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natvi.families.rows import take_extras
from natvi.linalg import ArrowVector, small_blocks
from natvi.target.likelihood_rows import LikelihoodRows
from natvi.target.mixed.random_effects import RandomEffectsPrior
from natvi.target.term import SumOfTerms

NODES_PER_DIMENSION = {1: 21, 2: 11, 3: 5}  # for all but Gaussian rows
MOST_STEPS = 60  # of Newton's method
FIRMNESS = 1e-12  # added to the diagonal of a Hessian, as a share of it
CLOSE = 1e-6  # squared length of a step, in sds, after which the next one is as good as zero


def can_integrate(target: SumOfTerms) -> bool:
    """Whether the target is a mixed model with few enough random effects per group; any number for Gaussian rows."""
    if tuple(type(term) for term in target.grouped) != (LikelihoodRows, RandomEffectsPrior):
        return False
    likelihood, effects = mixed_parts(target)
    return _is_gaussian(likelihood) or effects.r in NODES_PER_DIMENSION


def default_nodes(target: SumOfTerms) -> int:
    """Return the number of nodes per random effect of a group."""
    likelihood, effects = mixed_parts(target)
    return 1 if _is_gaussian(likelihood) else NODES_PER_DIMENSION[effects.r]


def _is_gaussian(likelihood: LikelihoodRows) -> bool:
    """Whether f_i is quadratic in theta_i."""
    return bool(getattr(likelihood.family, "quadratic", False))


def marginal_log_density(
    target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"], nodes: int | None = None
) -> Float[Array, ""]:
    """Return log p(y, theta_g), the random effects integrated out.

    Args:
        target: A mixed model.
        shared: theta_g.
        near: A guess of the modes of the random effects, e.g. their approximate means given theta_g.
        nodes: Of the quadrature, per random effect of a group; `default_nodes` if not given.

    Returns:
        The logarithm of the joint density of data and shared coordinates.
    """
    by_group, log_volumes, mode = _integrals(target, shared, near, nodes)
    likelihood, _ = mixed_parts(target)
    disp = take_extras(likelihood.family, shared, likelihood.p)
    prior = sum((term.value(ArrowVector(mode, shared)) for term in target.shared), jnp.zeros(()))
    return jnp.sum(by_group) - jnp.sum(log_volumes) + likelihood.normaliser(disp) + prior


def group_log_likelihoods(
    target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"]
) -> Float[Array, " n"]:
    """Return log p(y_i | theta_g) of every group, its random effects integrated out, but for the rows' constants."""
    by_group, log_volumes, _ = _integrals(target, shared, near, None)
    likelihood, _ = mixed_parts(target)
    disp = take_extras(likelihood.family, shared, likelihood.p)
    return by_group - log_volumes + likelihood.design.per_group(jnp.sum(likelihood.row_normalisers(disp), axis=0))


def _integrals(
    target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"], nodes: int | None
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, "r n"]]:
    """Return the log of every group's sum over nodes, the log volume |root| it is to be divided by, and the mode."""
    likelihood, effects = mixed_parts(target)
    rows = RowLikelihood(likelihood, shared)
    W = effects.precision_factor(shared)
    fixed = RowLikelihood(likelihood, jax.lax.stop_gradient(shared))
    precision = jax.lax.stop_gradient(W @ W.T)
    mode, root = jax.lax.stop_gradient(group_modes(fixed, precision, jax.lax.stop_gradient(near)))
    nodes = default_nodes(target) if nodes is None else nodes
    if _is_gaussian(likelihood) and nodes == 1:
        # log int exp f_i = f_i(mode) - log |root| + r/2 log 2 pi, where root depends on theta_g
        root = _slope_and_root(rows, W @ W.T, mode)[1]
    z, log_weight = _product_nodes(effects.r, nodes)
    constant = jnp.sum(jnp.log(jnp.diagonal(W))) - 0.5 * effects.r * jnp.log(2 * jnp.pi)

    @jax.checkpoint
    def log_integrand(z: Float[Array, " r"]) -> Float[Array, " n"]:
        step = small_blocks.solve_upper(root, jnp.broadcast_to(z[:, None], mode.shape))
        theta = mode + step
        return rows.by_group(theta) + constant - 0.5 * jnp.sum((W.T @ theta) ** 2, axis=0)

    def add(total: Float[Array, " n"], node: tuple[Array, Array]) -> tuple[Float[Array, " n"], None]:
        return jnp.logaddexp(total, node[1] + log_integrand(node[0])), None

    start = jnp.full_like(mode[0], -jnp.inf)
    by_group, _ = jax.lax.scan(add, start, (jnp.asarray(z), jnp.asarray(log_weight)))
    log_volumes = jnp.sum(jnp.log(jnp.stack([root[k, k] for k in range(effects.r)])), axis=0)
    return by_group, log_volumes, mode


class RowLikelihood:
    """The log-likelihood of every group as a function of its random effects, but for what theta_g alone decides."""

    def __init__(self, term: LikelihoodRows, shared: Float[Array, " g"]) -> None:
        self.term = term
        self.disp = take_extras(term.family, shared, term.p)
        self.base = term.design.offset + jnp.tensordot(shared[: term.p], term.design.X, axes=1)

    def predictor(self, theta: Float[Array, "r n"]) -> Float[Array, "c K"]:
        """Return every row's predictor."""
        local = self.term.design.per_chunk(theta)
        return self.base + jnp.sum(self.term.design.Z * local[:, None], axis=0)

    def log_density(self, eta: Float[Array, "c K"]) -> Float[Array, "c K"]:
        """Return every row's weighted log p, less its normaliser."""
        return self.term.row_kernels(eta, self.disp)

    def by_group(self, theta: Float[Array, "r n"]) -> Float[Array, " n"]:
        """Return every group's log-likelihood, less its normaliser."""
        rows = self.log_density(self.predictor(theta))
        return self.term.design.per_group(jnp.sum(rows, axis=0))

    def derivatives(self, eta: Float[Array, "c K"]) -> tuple[Float[Array, "c K"], Float[Array, "c K"]]:
        """Return first and second derivatives of every row's log p in its predictor."""
        slope = jax.grad(lambda x: jnp.sum(self.log_density(x)))
        return jax.jvp(slope, (eta,), (jnp.ones_like(eta),))


def _slope_and_root(
    rows: RowLikelihood, precision: Float[Array, "r r"], theta: Float[Array, "r n"]
) -> tuple[Float[Array, "r n"], Float[Array, "r r n"]]:
    """Return the gradient of every f_i, and the Cholesky factor of its negative Hessian."""
    design = rows.term.design
    slope, bend = rows.derivatives(rows.predictor(theta))
    if not is_log_concave(rows.term):
        bend = jnp.minimum(bend, 0.0)  # with the prior's precision the rest is positive definite
    grad = design.per_group(jnp.sum(design.Z * slope, axis=1)) - precision @ theta
    gram = design.per_group(jnp.sum(design.Z[:, None] * (-design.Z * bend)[None], axis=2))
    hess = gram + precision[..., None]
    # where e^eta is huge, one row outweighs the rest by more digits than there are, and rounding makes H indefinite
    firm = (
        jnp.where(jnp.eye(hess.shape[0])[..., None] > 0, hess * (1.0 + FIRMNESS), hess) if hess.shape[0] > 1 else hess
    )
    return grad, small_blocks.cholesky(firm)


def is_log_concave(likelihood: LikelihoodRows) -> bool:
    """Whether every row is log-concave in its predictor."""
    return bool(getattr(likelihood.family, "log_concave", True))


class _Search(NamedTuple):
    """Newton's method in every group at once."""

    theta: Float[Array, "r n"]
    value: Float[Array, " n"]
    length: Float[Array, " n"]  # of the next step: 1 unless a step failed
    left: Float[Array, ""]  # the largest squared step, in sds
    count: Int[Array, ""]


def group_modes(
    rows: RowLikelihood, precision: Float[Array, "r r"], near: Float[Array, "r n"]
) -> tuple[Float[Array, "r n"], Float[Array, "r r n"]]:
    """Return each group's mode and the Cholesky factor of the negative Hessian there.

    Where the family is log-concave in the predictor there is one mode; elsewhere a mode near the guess is found. A step
    counts in the groups where it raises the density; where it does not, a quarter of it is tried.
    """

    def density(theta: Float[Array, "r n"]) -> Float[Array, " n"]:
        return rows.by_group(theta) - 0.5 * jnp.sum(theta * (precision @ theta), axis=0)

    def newton(state: _Search) -> _Search:
        grad, root = _slope_and_root(rows, precision, state.theta)
        whitened = small_blocks.solve_lower(root, grad)
        candidate = state.theta + state.length * small_blocks.solve_upper(root, whitened)
        value = density(candidate)
        rises = value >= state.value - 1e-12 * (1.0 + jnp.abs(state.value))
        return _Search(
            jnp.where(rises, candidate, state.theta),
            jnp.where(rises, value, state.value),
            jnp.where(rises, jnp.minimum(1.0, 4.0 * state.length), 0.25 * state.length),
            jnp.max(jnp.sum(whitened**2, axis=0)),
            state.count + 1,
        )

    at_guess, at_zero = density(near), density(jnp.zeros_like(near))
    better = at_guess >= at_zero
    theta, value = jnp.where(better, near, 0.0), jnp.where(better, at_guess, at_zero)
    start = _Search(theta, value, jnp.ones_like(value), jnp.asarray(jnp.inf), jnp.zeros((), jnp.int32))
    found = jax.lax.while_loop(lambda s: (s.left > CLOSE) & (s.count < MOST_STEPS), newton, start)
    return found.theta, _slope_and_root(rows, precision, found.theta)[1]


def mixed_parts(target: SumOfTerms) -> tuple[LikelihoodRows, RandomEffectsPrior]:
    """Return the rows and the random effects of a mixed model."""
    likelihood, effects = target.grouped
    assert isinstance(likelihood, LikelihoodRows) and isinstance(effects, RandomEffectsPrior)
    return likelihood, effects


def _product_nodes(r: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `(nodes^r, r)` and log weights for the integral over R^r of a function, not of its product with phi."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grids = np.meshgrid(*[x] * r, indexing="ij")
    z = np.stack([grid.ravel() for grid in grids], axis=1)
    logs = np.meshgrid(*[np.log(w) + 0.5 * x**2] * r, indexing="ij")
    return z, np.sum([grid.ravel() for grid in logs], axis=0)
