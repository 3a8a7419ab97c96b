"""Unbiased gradients of the bound from first derivatives of the log-density (Theorem 2: G1 and G2).

With theta = push(z) and h = log p - log q, grad_mu L = E grad h, grad_C L = E grad h z', and
grad_T L = -E (theta - mu) v' with v = T^-1 grad h, each on the pattern of the factor. These are also the gradients of
the reparametrization trick. The estimates are never symmetrised.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.linalg import vector
from natvi.typing import Gaussian, Target, Vector


class BoundGradient(NamedTuple):
    """An estimate of the bound and of its gradients in mean and factor."""

    elbo: Float[Array, ""]
    mean: Vector
    factor: Any


def draw_normals(key: PRNGKeyArray, like: Vector, num_samples: int, antithetic: bool) -> Vector:
    """Draw standard normals with leading axis `num_samples`, in pairs z, -z if antithetic."""
    if num_samples < 1 or (antithetic and num_samples % 2):
        raise ValueError(f"num_samples must be positive, and even if antithetic; got {num_samples}.")
    count = num_samples // 2 if antithetic else num_samples
    z = jax.vmap(lambda k: vector.standard_normal(k, like))(jax.random.split(key, count))
    return jax.tree.map(lambda a: jnp.concatenate([a, -a]), z) if antithetic else z


def integrand_at(
    target: Target, gaussian: Gaussian, z: Vector, entropy: bool
) -> tuple[Vector, Float[Array, ""], Vector]:
    """Return theta = push(z) with h = log p - log q and its gradient there; without `entropy`, of log p alone."""
    theta = gaussian.push(z)
    value, grad = jax.value_and_grad(target.value)(theta)
    if entropy:
        value -= gaussian.log_prob(theta)
        grad = vector.add(grad, gaussian.score(z), -1.0)
    return theta, value, grad


def first_order_at(target: Target, gaussian: Gaussian, z: Vector, entropy: bool = True) -> BoundGradient:
    """Return the estimate from one draw; without `entropy`, of E log p alone."""
    _, value, grad = integrand_at(target, gaussian, z, entropy)
    return BoundGradient(value, grad, gaussian.first_order(z, grad))


def first_order(
    target: Target,
    gaussian: Gaussian,
    key: PRNGKeyArray,
    num_samples: int = 1,
    antithetic: bool = False,
    entropy: bool = True,
) -> BoundGradient:
    """Return the average of the estimates from several draws.

    Args:
        target: The log-density.
        gaussian: The current approximation.
        key: Randomness.
        num_samples: The number of draws.
        antithetic: Whether draws come in pairs z, -z.
        entropy: Whether to include the gradient of the entropy.

    Returns:
        Estimates of the bound and its gradients in mean and factor.
    """
    z = draw_normals(key, gaussian.mean, num_samples, antithetic)
    each = jax.vmap(lambda z: first_order_at(target, gaussian, z, entropy))(z)
    return jax.tree.map(lambda a: jnp.mean(a, axis=0), each)
