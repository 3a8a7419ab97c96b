"""The natural gradient of mean and factor, one formula for every product-closed pattern.

If the pattern S of the factor F contains the diagonal and is closed under matrix products (diagonal, dense, block
diagonal, the arrow), the inverse Fisher information maps the Euclidean gradient (g, G) to

    (Sigma g,  F half(F' G)),

half(A) being the lower triangle of A on S with the diagonal halved. Dense C and T: Lemma 1 and Theorem 1; block
diagonal C: Section 7.1; arrow T: Theorem 4. A part of the dense natural gradient is not the sparse one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natvi.gaussian import CovarianceGaussian
from natvi.linalg import ArrowFactor, DenseFactor, vector
from natvi.typing import Gaussian, Vector


class NaturalDirection(NamedTuple):
    """The steepest direction uphill in the Fisher metric."""

    mean: Vector
    factor: Any


def natural_direction(gaussian: Gaussian, mean_gradient: Vector, factor_gradient: Any) -> NaturalDirection:
    """Return the natural gradient.

    Args:
        gaussian: The current approximation, with factor C or T.
        mean_gradient: g, the gradient of the bound in the mean.
        factor_gradient: G, the Euclidean gradient in the factor, on its pattern.

    Returns:
        Sigma g and F half(F' G).
    """
    F = gaussian.factor
    return NaturalDirection(
        gaussian.covariance_product(mean_gradient), F.multiply(F.half_transposed_product(factor_gradient))
    )


def first_order_direction(gaussian: Any, z: Vector, grad: Vector, entropy: bool = False) -> NaturalDirection:
    """Return the natural gradient of a first-order estimate from one draw, without forming the estimate.

    On a closed pattern F' (g z') needs no other entries of g z' than those on it. So G1 = g z' gives C half(u z') with
    u = C'g, and G2 = -(T^-T z) v' with v = T^-1 g gives -T half(z v'); for dense factors d^2 operations, not d^3.

    Args:
        gaussian: The current approximation.
        z: The standard normal draw.
        grad: The gradient of h = log p - log q at theta = push(z).
        entropy: Whether `grad` is that of log p alone; -grad log q is C^-T z or T z, which adds z to u or v.
    """
    F = gaussian.factor
    covariance = isinstance(gaussian, CovarianceGaussian)
    white = F.transposed_product(grad) if covariance else F.solve(grad)
    if entropy:
        white = vector.add(white, z)
    if covariance:
        return NaturalDirection(F.product(white), _multiply_half_outer(F, white, z))
    factor = _multiply_half_outer(F, z, white)
    return NaturalDirection(F.solve_transposed(white), jax.tree.map(jnp.negative, factor))


def _multiply_half_outer(F: Any, a: Vector, b: Vector) -> Any:
    """Return F half(a b')."""
    if isinstance(F, DenseFactor | ArrowFactor):
        return F.multiply_half_outer(a, b)
    outer = F.outer(a, b)
    return F.multiply(outer.with_diagonal(jax.tree.map(lambda x: 0.5 * x, outer.diagonal())))


def corollary_mean(old_factor: Any, new_factor: Any, mean_gradient: Vector) -> Vector:
    """Return T_new^-T T_old^-1 g, the direction of the mean that uses the updated T (Corollary 1)."""
    return new_factor.solve_transposed(old_factor.solve(mean_gradient))
