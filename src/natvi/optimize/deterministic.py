"""Deterministic gradient ascent on a tractable bound for a dense Gaussian (paper, Sections 4 and 5).

Table 1 in three parametrizations, kappa = (mu, Sigma), xi = (mu, Sigma^-1) and the natural parameter lambda, from the
gradients in mu and Sigma; Theorem 1 and Corollary 1 in the factors C and T. Every update is a pure function of a
point, a gradient and a step rho; an update that loses positive definiteness says so by NaN or by `positive_definite`.

The paper's choice of rho is in `natvi.paper.largest_step`; the fast, safeguarded ascent of the mixed models, which
is column lambda of Table 1 on the arrow, in `natvi.optimize.ascent`.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.natural import natural_direction
from natvi.optimize.rule import replace

Scalar = float | Float[Array, ""]
Factored = TypeVar("Factored", CovarianceGaussian, PrecisionGaussian)


class Moments(NamedTuple):
    """A dense Gaussian by its mean and covariance."""

    mu: Float[Array, " d"]
    Sigma: Float[Array, "d d"]


class MomentGradient(NamedTuple):
    """The gradient of the bound in mu and in Sigma, the latter entry by entry: vec(grad_Sigma) = grad_vec(Sigma)."""

    mu: Float[Array, " d"]
    Sigma: Float[Array, "d d"]


class FactorGradient(NamedTuple):
    """The Euclidean gradient of the bound in the mean and in the lower triangular factor, C or T."""

    mean: Float[Array, " d"]
    factor: Any


# --- Table 1 -----------------------------------------------------------------------------------------------


def euclidean_kappa(q: Moments, gradient: MomentGradient, rho: Scalar) -> Moments:
    """Move (mu, Sigma) along the Euclidean gradient.

    mu + rho grad_mu;  Sigma + rho grad_Sigma

    Paper: Section 4.1, the update that Table 1 is compared with.
    """
    return Moments(q.mu + rho * gradient.mu, q.Sigma + rho * gradient.Sigma)


def natural_kappa(q: Moments, gradient: MomentGradient, rho: Scalar) -> Moments:
    """Move kappa = (mu, vech Sigma) along its natural gradient.

    mu + rho Sigma grad_mu;  Sigma + 2 rho Sigma grad_Sigma Sigma

    Paper: Table 1, column kappa; supplement S1.
    """
    return Moments(q.mu + rho * q.Sigma @ gradient.mu, q.Sigma + 2 * rho * q.Sigma @ gradient.Sigma @ q.Sigma)


def natural_xi(q: Moments, gradient: MomentGradient, rho: Scalar) -> Moments:
    """Move xi = (mu, vech Sigma^-1) along its natural gradient.

    Sigma_new^-1 = Sigma^-1 - 2 rho grad_Sigma;  mu + rho Sigma grad_mu

    Paper: Table 1, column xi; supplement S1.
    """
    return Moments(q.mu + rho * q.Sigma @ gradient.mu, _moved_covariance(q, gradient, rho))


def natural_lambda(q: Moments, gradient: MomentGradient, rho: Scalar) -> Moments:
    """Move the natural parameter along its natural gradient; rho = 1 is a fixed-point iteration.

    Sigma_new^-1 = Sigma^-1 - 2 rho grad_Sigma;  mu + rho Sigma_new grad_mu

    Paper: Table 1, column lambda; supplement S1.
    """
    Sigma = _moved_covariance(q, gradient, rho)
    return Moments(q.mu + rho * Sigma @ gradient.mu, Sigma)


def stochastic_lambda(q: Moments, grad: Float[Array, " d"], hess: Float[Array, "d d"], rho: Scalar) -> Moments:
    """Move the natural parameter along an estimate from one draw theta.

    Sigma_new^-1 = Sigma^-1 - rho hess h(theta);  mu + rho Sigma_new grad h(theta)

    Args:
        q: The current Gaussian, from which theta was drawn.
        grad: The gradient of h = log p - log q at theta; estimates grad_mu (Bonnet).
        hess: The Hessian of h at theta; half of it estimates grad_Sigma (Price).
        rho: The step. Nothing keeps Sigma_new positive definite: where it is not, the result is NaN.

    Paper: Section 5.1, the update that VOGN makes safe.
    """
    return natural_lambda(q, MomentGradient(grad, 0.5 * hess), rho)


def positive_definite(q: Moments) -> Bool[Array, ""]:
    """Tell whether Sigma has a Cholesky factor."""
    return jnp.all(jnp.isfinite(jnp.linalg.cholesky(q.Sigma)))


def _moved_covariance(q: Moments, gradient: MomentGradient, rho: Scalar) -> Float[Array, "d d"]:
    # a precision that is not positive definite has no Cholesky factor, and NaN is what comes out
    return _inverse(_inverse(q.Sigma) - 2 * rho * gradient.Sigma)


def _inverse(A: Float[Array, "d d"]) -> Float[Array, "d d"]:
    root = solve_triangular(jnp.linalg.cholesky(A), jnp.eye(A.shape[0], dtype=A.dtype), lower=True)
    return root.T @ root


# --- Theorem 1 and Corollary 1 -----------------------------------------------------------------------------


def factor_gradient(gaussian: CovarianceGaussian | PrecisionGaussian, gradient: MomentGradient) -> FactorGradient:
    """Turn the gradient in Sigma into the one in the dense factor.

    grad_C = lower(2 grad_Sigma C);  grad_T = -lower(2 Sigma grad_Sigma T^-T)

    Paper: supplement S2. In the notation of Theorem 2 these are F1 and F2 at E hess h = 2 grad_Sigma.
    """
    return FactorGradient(gradient.mu, gaussian.second_order(2 * gradient.Sigma))


def natural_factor(gaussian: Factored, gradient: FactorGradient, rho: Scalar) -> Factored:
    """Move (mu, C) or (mu, T) along the natural gradient.

    mu + rho Sigma grad_mu;  F + rho F half(F' G) with F = C or T

    Paper: Theorem 1 (i) for C and (ii) for T.
    """
    direction = natural_direction(gaussian, *gradient)
    return replace(gaussian, gaussian.mean + rho * direction.mean, _moved(gaussian.factor, direction.factor, rho))


def natural_factor_corollary(gaussian: PrecisionGaussian, gradient: FactorGradient, rho: Scalar) -> PrecisionGaussian:
    """Move (T' mu, T) along the natural gradient: T first, then mu with the new T.

    T_new = T + rho T half(T' G);  mu + rho T_new^-T T^-1 grad_mu

    Paper: Corollary 1.
    """
    direction = natural_direction(gaussian, *gradient)
    moved = _moved(gaussian.factor, direction.factor, rho)
    move = gaussian.moved_mean(moved, gradient.mean, direction.mean)
    return replace(gaussian, gaussian.mean + rho * move, moved)


def _moved(factor: Any, direction: Any, rho: Scalar) -> Any:
    return jax.tree.map(lambda f, d: f + rho * d, factor, direction)
