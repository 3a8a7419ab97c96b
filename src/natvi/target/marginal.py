"""The random effects integrated out: log p(y, theta_g) of a mixed model by adaptive Gauss-Hermite quadrature.

For each group the mode of f_i(theta_i) = log p(y_i, theta_i | theta_g) is found by Newton's method and the nodes are
laid around it with the curvature there. The integral does not depend on where the nodes lie, so mode and curvature
count as constants when the result is differentiated in theta_g. For Gaussian responses it is exact.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg import ArrowVector, small_blocks
from natvi.target.likelihood_rows import LikelihoodRows
from natvi.target.random_effects import RandomEffectsPrior
from natvi.target.term import SumOfTerms

NODES_PER_DIMENSION = {1: 21, 2: 9, 3: 5}
NEWTON_STEPS = 4


def can_integrate(target: SumOfTerms) -> bool:
    """Whether the target is a mixed model with few enough random effects per group."""
    kinds = tuple(type(term) for term in target.grouped)
    return kinds == (LikelihoodRows, RandomEffectsPrior) and _parts(target)[1].r in NODES_PER_DIMENSION


def marginal_log_density(target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"]) -> Float[Array, ""]:
    """Return log p(y, theta_g), the random effects integrated out.

    Args:
        target: A mixed model.
        shared: theta_g.
        near: A guess of the modes of the random effects, e.g. their approximate means given theta_g.

    Returns:
        The logarithm of the joint density of data and shared coordinates.
    """
    likelihood, effects = _parts(target)
    rows = _RowLikelihood(likelihood, shared)
    W = effects.precision_factor(shared)
    fixed = _RowLikelihood(likelihood, jax.lax.stop_gradient(shared))
    precision = jax.lax.stop_gradient(W @ W.T)
    mode, root = jax.lax.stop_gradient(_mode(fixed, precision, jax.lax.stop_gradient(near)))
    z, log_weight = _product_nodes(effects.r)
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
    log_volume = jnp.sum(jnp.log(jnp.stack([root[k, k] for k in range(effects.r)])))
    point = ArrowVector(mode, shared)
    prior = sum((term.value(point) for term in target.shared), jnp.zeros(()))
    return jnp.sum(by_group) - log_volume + likelihood.constant + prior


class _RowLikelihood:
    """The log-likelihood of every group as a function of its random effects, theta_g fixed."""

    def __init__(self, term: LikelihoodRows, shared: Float[Array, " g"]) -> None:
        self.term = term
        self.disp = shared[term.p] if term.family.has_dispersion else None
        self.base = term.design.offset + jnp.tensordot(shared[: term.p], term.design.X, axes=1)

    def predictor(self, theta: Float[Array, "r n"]) -> Float[Array, "c K"]:
        local = self.term.design.per_chunk(theta)
        return self.base + jnp.sum(self.term.design.Z * local[:, None], axis=0)

    def log_density(self, eta: Float[Array, "c K"]) -> Float[Array, "c K"]:
        return self.term.row_values(eta, self.disp)

    def by_group(self, theta: Float[Array, "r n"]) -> Float[Array, " n"]:
        rows = self.log_density(self.predictor(theta))
        return self.term.design.per_group(jnp.sum(rows, axis=0))

    def derivatives(self, eta: Float[Array, "c K"]) -> tuple[Float[Array, "c K"], Float[Array, "c K"]]:
        slope = jax.grad(lambda x: jnp.sum(self.log_density(x)))
        return jax.jvp(slope, (eta,), (jnp.ones_like(eta),))


def _mode(
    rows: _RowLikelihood, precision: Float[Array, "r r"], near: Float[Array, "r n"]
) -> tuple[Float[Array, "r n"], Float[Array, "r r n"]]:
    """Return each group's mode and the Cholesky factor of the negative Hessian there."""
    design = rows.term.design

    def curvature(theta: Float[Array, "r n"]) -> tuple[Float[Array, "r n"], Float[Array, "r r n"]]:
        slope, bend = rows.derivatives(rows.predictor(theta))
        grad = design.per_group(jnp.sum(design.Z * slope, axis=1)) - precision @ theta
        weighted = -design.Z * bend
        gram = design.per_group(jnp.sum(design.Z[:, None] * weighted[None], axis=2))
        return grad, small_blocks.cholesky(gram + precision[..., None])

    def newton(_: Array, theta: Float[Array, "r n"]) -> Float[Array, "r n"]:
        grad, root = curvature(theta)
        return theta + small_blocks.solve_upper(root, small_blocks.solve_lower(root, grad))

    mode = jax.lax.fori_loop(0, NEWTON_STEPS, newton, near)
    return mode, curvature(mode)[1]


def _parts(target: SumOfTerms) -> tuple[LikelihoodRows, RandomEffectsPrior]:
    likelihood, effects = target.grouped
    assert isinstance(likelihood, LikelihoodRows) and isinstance(effects, RandomEffectsPrior)
    return likelihood, effects


def _product_nodes(r: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes `(k^r, r)` and log weights for the integral over R^r of a function, not of its product with phi."""
    x, w = np.polynomial.hermite_e.hermegauss(NODES_PER_DIMENSION[r])
    grids = np.meshgrid(*[x] * r, indexing="ij")
    z = np.stack([grid.ravel() for grid in grids], axis=1)
    logs = np.meshgrid(*[np.log(w) + 0.5 * x**2] * r, indexing="ij")
    return z, np.sum([grid.ravel() for grid in logs], axis=0)
