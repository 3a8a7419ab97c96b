"""The Gaussian that maximises the exact bound of a regression, without any sampling: what all algorithms aim at.

Table 1 of the paper, column lambda:  S <- (1 - r) S + r (-E hess),  mu <- mu + r S_new^-1 E grad,  from r = 1. A step
counts only if S_new is positive definite and the bound rises; else r is halved. For a diagonal covariance S keeps the
diagonal of -E hess alone, while mu takes the Newton step r (-E hess)^-1 E grad: with the diagonal there too, the
iteration is Jacobi's and diverges.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.derivatives import exact_derivatives
from natvi.gaussian import CovarianceGaussian
from natvi.linalg import DenseFactor, DiagonalFactor

TOLERANCE = 1e-11  # relative rise of the bound
HALVINGS = 30
LIMIT = 200


class Best(NamedTuple):
    """The maximiser, its bound, and how many steps were made and tried."""

    gaussian: CovarianceGaussian
    elbo: float
    steps: int
    tried: int


def maximise(target: Any, structure: str) -> Best:
    """Return the best Gaussian of a structure, "diagonal" or "full"."""
    mean = jnp.zeros(target.p)
    S = jnp.eye(target.p) * target.num_rows
    here, tried = _evaluate(target, mean, S), 1
    steps = 0
    while steps < LIMIT:
        r = 1.0
        for _ in range(HALVINGS):
            candidate = _propose(mean, S, here, r, structure)
            there = _evaluate(target, *candidate)
            tried += 1
            # a matrix that is not positive definite has no factor: its bound is NaN, which is no rise
            if there.elbo > here.elbo:
                break
            r /= 2
        else:
            break
        rise = float(there.elbo - here.elbo)
        (mean, S), here, steps = candidate, there, steps + 1
        if rise < TOLERANCE * abs(float(here.elbo)):
            break
    return Best(_gaussian(mean, S, structure), float(here.elbo), steps, tried)


@jax.jit
def _evaluate(target: Any, mean: Float[Array, " d"], S: Float[Array, "d d"]) -> Any:
    return exact_derivatives(target, CovarianceGaussian(mean, DenseFactor(_root(S))))


@partial(jax.jit, static_argnums=4)
def _propose(mean: Any, S: Any, here: Any, r: Any, structure: str) -> tuple[Any, Any]:
    curvature = -here.hess
    if structure == "diagonal":
        S_new = (1 - r) * S + r * jnp.diag(jnp.diagonal(curvature))
        return mean + r * jnp.linalg.solve(curvature, here.grad), S_new
    S_new = (1 - r) * S + r * curvature
    return mean + r * jnp.linalg.solve(S_new, here.grad), S_new


def _root(S: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Return C, lower triangular, with C C' = S^-1; of NaN if S is not positive definite."""
    inverse = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(S), True), jnp.eye(len(S)))
    return jnp.linalg.cholesky(inverse)


def _gaussian(mean: Any, S: Any, structure: str) -> CovarianceGaussian:
    diagonal = structure == "diagonal"
    return CovarianceGaussian(mean, DiagonalFactor(jnp.diagonal(S) ** -0.5) if diagonal else DenseFactor(_root(S)))
