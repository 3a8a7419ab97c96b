"""Curvature from one draw and first derivatives, by Stein's identity: what IVON takes.

For theta = mu + sigma z with independent coordinates,  E[-hess_ii log p] = E[-grad_i log p * z_i / sigma_i].
One backward pass gives gradient and curvature; the prior's part of both is known and adds no noise.
"""

from typing import Any

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.derivatives.first_order import average_draws
from natvi.derivatives.per_example import CurvatureGradient
from natvi.linalg import vector
from natvi.target.rows import RowTarget
from natvi.typing import Gaussian, Target, Vector


def stein_at(target: RowTarget, gaussian: Any, z: Vector) -> CurvatureGradient:
    """Return the estimates from one draw: g = grad log p(y | theta) + prior's at mu, H = -g_y z / sigma + prior's."""
    theta = gaussian.push(z)
    value, total = jax.value_and_grad(target.value)(theta)
    likelihood: Float[Array, " d"] = total - target.prior.gradient(theta)
    return CurvatureGradient(
        value - gaussian.log_prob_at(z),
        likelihood + target.prior.gradient(gaussian.mean),
        likelihood * gaussian.score(z) + target.prior.precision,  # the score of q is -z / sigma
    )


def stein_curvature(
    target: Target, gaussian: Gaussian, key: PRNGKeyArray, num_samples: int = 1, antithetic: bool = False
) -> CurvatureGradient:
    """Return the average of the estimates from several draws."""
    # a triangular factor with one entry for each coordinate is diagonal
    diagonal = gaussian.factor.num_entries == vector.length(gaussian.mean)
    if not diagonal or not isinstance(target, RowTarget):
        raise ValueError(
            "IVON needs a target of rows with a prior (DesignRows, FunctionRows) and independent coordinates "
            f"(natvi.gaussian.diagonal_covariance); got {type(target).__name__} with {type(gaussian.factor).__name__}."
        )
    return average_draws(lambda z: stein_at(target, gaussian, z), key, gaussian, num_samples, antithetic)
