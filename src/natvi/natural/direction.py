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
from natvi.linalg import ArrowFactor, DenseFactor
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


def first_order_direction(gaussian: Any, z: Vector, grad: Vector) -> NaturalDirection:
    """Return the natural gradient of a first-order estimate from one draw, without forming the estimate.

    On a closed pattern F' (g z') needs no other entries of g z' than those on it. So G1 = g z' gives C half((C'g) z'),
    and G2 = -(T^-T z) v' with v = T^-1 g gives -T half(z v'); for dense factors d^2 operations, not d^3.
    """
    F = gaussian.factor
    if not isinstance(F, DenseFactor | ArrowFactor):
        return natural_direction(gaussian, grad, gaussian.first_order(z, grad))
    if isinstance(gaussian, CovarianceGaussian):
        u = F.transposed_product(grad)
        return NaturalDirection(F.product(u), F.multiply_half_outer(u, z))
    v = F.solve(grad)
    factor = F.multiply_half_outer(z, v)
    return NaturalDirection(F.solve_transposed(v), jax.tree.map(jnp.negative, factor))


def corollary_mean(old_factor: Any, new_factor: Any, mean_gradient: Vector) -> Vector:
    """Return T_new^-T T_old^-1 g, the direction of the mean that uses the updated T (Corollary 1)."""
    return new_factor.solve_transposed(old_factor.solve(mean_gradient))
