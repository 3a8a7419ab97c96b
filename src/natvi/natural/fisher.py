"""The explicit Fisher information of (mean, free entries of the factor): an oracle for small d.

F = -E grad^2 log q is the Hessian of KL(q_lambda || q_lambda') in lambda' at lambda' = lambda, taken here by automatic
differentiation of the closed-form divergence on dense matrices. It shares no code with the analytic inverse.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def fisher_information(
    covariance_of: Callable[[Float[Array, " e"]], Float[Array, "d d"]], entries: Float[Array, " e"], d: int
) -> Float[Array, "k k"]:
    """Return the Fisher information of N(mu, covariance_of(entries)) in (mu, entries).

    Args:
        covariance_of: The covariance as a function of the free entries of the factor.
        entries: The free entries.
        d: The dimension.

    Returns:
        A matrix of size d plus the number of entries; it does not depend on mu.
    """
    here = covariance_of(entries)

    def divergence(change: Float[Array, " k"]) -> Float[Array, ""]:
        # KL(N(0, A) || N(m, B)) without constants: (tr B^-1 A + m' B^-1 m + log |B|) / 2
        m, there = change[:d], covariance_of(entries + change[d:])
        inverse = jnp.linalg.inv(there)
        return 0.5 * (jnp.trace(inverse @ here) + m @ inverse @ m + jnp.linalg.slogdet(there)[1])

    return jax.hessian(divergence)(jnp.zeros(d + entries.shape[0]))
