"""Gradients example by example, for the generalized Gauss-Newton curvature of VOGN (supplement S5).

Its "GGN" is the empirical Fisher information sum_i g_i g_i' of the examples' gradients g_i, laid on the pattern.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.linalg import ArrowFactor, ArrowMatrix, ArrowVector, BlockFactor, DiagonalFactor
from natvi.typing import Factor, Hessian, Vector


class CurvatureGradient(NamedTuple):
    """A gradient of E log p in the mean and a positive estimate of -E hess log p on the pattern."""

    mean: Vector
    curvature: Hessian


def gauss_newton(gradients: Float[Array, "k d"], factor: Factor) -> Hessian:
    """Return sum_i g_i g_i' on the factor's pattern.

    Example:
        >>> import jax.numpy as jnp
        >>> from natvi.linalg import DiagonalFactor
        >>> gauss_newton(jnp.array([[1.0, 2.0], [3.0, 0.0]]), DiagonalFactor.identity(2)).tolist()
        [10.0, 4.0]
    """
    if isinstance(factor, DiagonalFactor):
        return jnp.sum(gradients**2, axis=0)
    if isinstance(factor, BlockFactor):
        pieces = (gradients[:, i] for i in factor.layout.indices)
        return tuple(jnp.einsum("sik,sjk->ijk", piece, piece) for piece in pieces)
    return gradients.T @ gradients


def gauss_newton_arrow(gradients: ArrowVector) -> ArrowMatrix:
    """Return J' J on the arrow from each group's gradient: local `(r, n)`, and shared `(g, n)` group by group."""
    local, shared = gradients
    return ArrowMatrix(
        local[:, None] * local[None], shared[:, None] * local[None], jnp.einsum("gn,hn->gh", shared, shared)
    )


def per_example_gradients(
    log_likelihood: Callable[[Vector, Any], Float[Array, ""]], theta: Float[Array, " d"], rows: Any
) -> Float[Array, "k d"]:
    """Return the gradient of each row's log-likelihood; `rows` is a pytree with a leading axis."""
    return jax.vmap(jax.grad(log_likelihood), in_axes=(None, 0))(theta, rows)


def scaled_curvature(
    gradients: Float[Array, "k d"], num_rows: int, factor: Factor, prior_precision: float, mean: Float[Array, " d"]
) -> CurvatureGradient:
    """Return VOGN's estimates from a minibatch of k of n rows under the prior N(0, I / prior_precision).

    g = (n/k) sum_i g_i - prior_precision mu;  H = (n/k) sum_i g_i g_i' + prior_precision I
    """
    if isinstance(factor, ArrowFactor):
        raise ValueError("On the arrow, use gauss_newton_arrow with each group's gradient.")
    scale = num_rows / gradients.shape[0]
    curvature = jax.tree.map(lambda h: scale * h, gauss_newton(gradients, factor))
    return CurvatureGradient(
        scale * jnp.sum(gradients, axis=0) - prior_precision * mean, add_to_diagonal(curvature, prior_precision)
    )


def add_to_diagonal(curvature: Hessian, amount: float) -> Hessian:
    """Add a multiple of the identity to a curvature on a diagonal, dense or block pattern."""
    if isinstance(curvature, tuple):
        return tuple(stack + amount * jnp.eye(len(stack))[..., None] for stack in curvature)
    return curvature + amount * (1.0 if curvature.ndim == 1 else jnp.eye(len(curvature)))
