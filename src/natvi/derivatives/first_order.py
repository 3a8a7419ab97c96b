"""Unbiased gradients of the bound from first derivatives of the log-density (Theorem 2: G1 and G2).

With theta = push(z) and h = log p - log q, grad_mu L = E grad h, grad_C L = E grad h z', and
grad_T L = -E (theta - mu) v' with v = T^-1 grad h, each on the pattern of the factor. These are also the gradients of
the reparametrization trick. The estimates are never symmetrised.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.linalg import vector
from natvi.typing import Gaussian, Target, Vector

Estimate = TypeVar("Estimate")


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


def average_draws(
    estimate: Callable[[Vector], Estimate], key: PRNGKeyArray, gaussian: Gaussian, num_samples: int, antithetic: bool
) -> Estimate:
    """Return the average of an estimate over standard normal draws."""
    if num_samples == 1 and not antithetic:
        return estimate(vector.standard_normal_kept(key, gaussian.mean))
    z = draw_normals(key, gaussian.mean, num_samples, antithetic)
    return jax.tree.map(lambda a: jnp.mean(a, axis=0), jax.vmap(estimate)(z))


def integrand_at(
    target: Target, gaussian: Gaussian, z: Vector, entropy: bool
) -> tuple[Vector, Float[Array, ""], Vector]:
    """Return theta = push(z), h = log p - log q there, and its gradient; without `entropy`, that of log p alone."""
    theta = gaussian.push(z)
    value, grad = jax.value_and_grad(target.value)(theta)
    if entropy:
        grad = vector.add(grad, gaussian.score(z), -1.0)
    return theta, value - gaussian.log_prob_at(z), grad


def first_order_at(target: Target, gaussian: Gaussian, z: Vector, entropy: bool = True) -> BoundGradient:
    """Return the estimate from one draw; without `entropy`, gradients of E log p alone."""
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
        entropy: Whether the gradients include the entropy's; the bound always includes the entropy.

    Returns:
        Estimates of the bound and its gradients in mean and factor.
    """
    return average_draws(lambda z: first_order_at(target, gaussian, z, entropy), key, gaussian, num_samples, antithetic)
