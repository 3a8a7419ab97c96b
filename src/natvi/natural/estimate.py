"""Estimates of the natural direction itself, draw by draw."""

from typing import NamedTuple

from jaxtyping import Array, Float, PRNGKeyArray

from natvi.derivatives.first_order import average_draws, integrand_at
from natvi.linalg import vector
from natvi.natural.direction import NaturalDirection, first_order_direction
from natvi.typing import Gaussian, Target, Vector


class NaturalEstimate(NamedTuple):
    """An estimate of the bound, of its gradient in the mean, and of the natural direction."""

    elbo: Float[Array, ""]
    gradient: Vector
    direction: NaturalDirection


def first_order_natural(
    target: Target, gaussian: Gaussian, key: PRNGKeyArray, num_samples: int = 1, antithetic: bool = False
) -> NaturalEstimate:
    """Return the natural direction of the first-order estimate, which is linear in it, draw by draw."""

    def one(z: Vector) -> NaturalEstimate:
        _, value, grad = integrand_at(target, gaussian, z, entropy=False)
        direction = first_order_direction(gaussian, z, grad, entropy=True)
        return NaturalEstimate(value, vector.add(grad, gaussian.score(z), -1.0), direction)

    return average_draws(one, key, gaussian, num_samples, antithetic)
