"""The Poisson loglinear model: the one whose lower bound is tractable (paper, Section 4.1 and supplement S2).

y_i ~ Poisson(exp(x_i' theta)), theta ~ N(0, sigma_0^2 I). Under theta ~ N(mu, Sigma) the expected rate of row i is

    w_i = exp(x_i' mu + x_i' Sigma x_i / 2),

and bound and gradients follow in closed form, constants included.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from natvi.derivatives.first_order import BoundGradient
from natvi.gaussian import CovarianceGaussian, PrecisionGaussian


class Loglinear(eqx.Module):
    """Counts with a log link and the bound of S2.

    Args:
        X: Covariates; a column of ones if there is an intercept.
        y: Counts, as floats.
        prior_sd: sigma_0.
        weight: How many rows each row stands for: n / |B| when the rows are a minibatch B of n.

    Example:
        >>> model = Loglinear(jnp.ones((3, 1)), jnp.array([2.0, 0.0, 4.0]))
        >>> round(float(model.elbo(jnp.array([0.6]), jnp.array([[0.1]]))), 2)
        -8.97
    """

    X: Float[Array, "n d"]
    y: Float[Array, " n"]
    prior_sd: float = eqx.field(static=True, default=10.0)
    weight: float = eqx.field(static=True, default=1.0)

    def value(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return log p(y, theta)."""
        # a point is a Gaussian without spread
        return self._expected_value(theta, jnp.exp(self.X @ theta), jnp.zeros((), theta.dtype))

    # --- in the mean and the covariance, as S2 states them -----------------------------------------------

    def elbo(self, mu: Float[Array, " d"], Sigma: Float[Array, "d d"]) -> Float[Array, ""]:
        """Return the lower bound; NaN where Sigma is not positive definite."""
        log_root = jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(Sigma))))
        entropy = 0.5 * mu.shape[0] * (1 + math.log(2 * math.pi)) + log_root
        return self._expected_value(mu, self._rates(mu, Sigma), jnp.trace(Sigma)) + entropy

    def grad_mu(self, mu: Float[Array, " d"], Sigma: Float[Array, "d d"]) -> Float[Array, " d"]:
        """Return X'(y - w) - mu / sigma_0^2."""
        return self._expected_gradient(mu, self._rates(mu, Sigma))

    def grad_Sigma(self, mu: Float[Array, " d"], Sigma: Float[Array, "d d"]) -> Float[Array, "d d"]:
        """Return (Sigma^-1 - I / sigma_0^2 - X' W X) / 2."""
        return 0.5 * (jnp.linalg.inv(Sigma) + self._expected_hessian(self._rates(mu, Sigma)))

    # --- for the Gaussians of the library ----------------------------------------------------------------

    def bound(self, gaussian: CovarianceGaussian | PrecisionGaussian, entropy: bool = True) -> BoundGradient:
        """Return the bound and its exact gradients in mean and factor, in the form that update rules take.

        Args:
            gaussian: With a factor C or T of any structure on a flat vector.
            entropy: Whether to include the entropy; without it, all is said of E log p(y, theta) alone.
        """
        mu, factor = gaussian.mean, gaussian.factor
        w = self._rates_from(mu, gaussian.row_variances(self.X))
        trace = jnp.sum(gaussian.marginal_sds() ** 2)
        hess = factor.add_diagonal(factor.gram(self.X, -self.weight * w), jnp.full_like(mu, -1 / self.prior_sd**2))
        value, gradient = self._expected_value(mu, w, trace), gaussian.second_order(hess)
        if entropy:
            value += gaussian.entropy()
            gradient = jax.tree.map(jnp.add, gradient, gaussian.entropy_gradient())
        return BoundGradient(value, self._expected_gradient(mu, w), gradient)

    # --- E log p(y, theta) and its derivatives, from the expected rates ----------------------------------

    def _rates(self, mu: Float[Array, " d"], Sigma: Float[Array, "d d"]) -> Float[Array, " n"]:
        return self._rates_from(mu, jnp.sum((self.X @ Sigma) * self.X, axis=1))

    def _rates_from(self, mu: Float[Array, " d"], variances: Float[Array, " n"]) -> Float[Array, " n"]:
        return jnp.exp(self.X @ mu + 0.5 * variances)

    def _expected_value(
        self, mu: Float[Array, " d"], w: Float[Array, " n"], trace: Float[Array, ""]
    ) -> Float[Array, ""]:
        rows = self.y * (self.X @ mu) - w - gammaln(self.y + 1)
        prior = -0.5 * mu.shape[0] * math.log(2 * math.pi * self.prior_sd**2)
        return self.weight * jnp.sum(rows) + prior - 0.5 * (mu @ mu + trace) / self.prior_sd**2

    def _expected_gradient(self, mu: Float[Array, " d"], w: Float[Array, " n"]) -> Float[Array, " d"]:
        return self.weight * self.X.T @ (self.y - w) - mu / self.prior_sd**2

    def _expected_hessian(self, w: Float[Array, " n"]) -> Float[Array, "d d"]:
        return -self.weight * (self.X.T * w) @ self.X - jnp.eye(self.X.shape[1], dtype=w.dtype) / self.prior_sd**2
