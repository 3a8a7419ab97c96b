"""The natural gradient of mean and factor, one formula for every product-closed pattern.

If the pattern S of the factor F contains the diagonal and is closed under matrix products (diagonal, dense, block
diagonal, the arrow), the inverse Fisher information maps the Euclidean gradient (g, G) to

    (Sigma g,  F half(F' G)),

half(A) being the lower triangle of A on S with the diagonal halved. Dense C and T: Lemma 1 and Theorem 1; block
diagonal C: Section 7.1; arrow T: Theorem 4. A part of the dense natural gradient is not the sparse one. On patterns
that are not closed the information is block diagonal over columns, for which the factor solves
(`linalg/open_pattern.py`).
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from natvi.linalg import vector
from natvi.typing import Gaussian, Vector


@runtime_checkable
class SolvesColumns(Protocol):
    """A factor on a pattern that is not closed under products."""

    def natural(self, G: Any) -> Any:
        """Return the natural gradient that belongs to a Euclidean one."""
        ...


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
        Sigma g and F half(F' G); on a pattern that is not closed, what the factor's own solves give.
    """
    F = gaussian.factor
    if isinstance(F, SolvesColumns):
        direction = F.natural(factor_gradient)
    else:
        direction = F.multiply(F.half_transposed_product(factor_gradient))
    return NaturalDirection(gaussian.covariance_product(mean_gradient), direction)


def first_order_direction(gaussian: Gaussian, z: Vector, grad: Vector, entropy: bool = False) -> NaturalDirection:
    """Return the natural gradient of a first-order estimate from one draw, without forming the estimate.

    On a closed pattern F' (g z') needs no other entries of g z' than those on it. So G1 = g z' gives C half(u z') with
    u = C'g, and G2 = -(T^-T z) v' with v = T^-1 g gives -T half(z v'); for dense factors d^2 operations, not d^3.

    Args:
        gaussian: The current approximation.
        z: The standard normal draw.
        grad: The gradient of h = log p - log q at theta = push(z).
        entropy: Whether `grad` is that of log p alone; -grad log q is C^-T z or T z, which adds z to u or v.
    """
    white = gaussian.whiten(grad)
    if entropy:
        white = vector.add(white, z)
    return NaturalDirection(gaussian.unwhiten(white), gaussian.natural_outer(white, z))
