"""The system of any log-density with a full covariance: expectations on fixed points, steps within a trust region.

x = (Sigma^-1 mu, Sigma^-1). With Sigma = C C', g = C' E grad and A = -C' E[hess] C = V a V' (both from gradients
alone), the full step takes

    Sigma^-1 <- C^-T V clip(a, 1/r, r) V' C^-1,     mu <- mu + C V (V'g) / max(|a|, 1/r),  at most R sds long.

At the optimum a = 1 and g = 0. The bound on fixed points is a plain function, so the ascent's safeguard is exact.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from natvi.derivatives.fixed_points import whitened_expectation
from natvi.gaussian import CovarianceGaussian
from natvi.linalg import DenseFactor
from natvi.optimize.system import Evaluated, Packed
from natvi.target.function import FunctionTarget

WIDEST = 10.0  # r, by which a precision may change in one step
FURTHEST = 2.0  # R / sqrt d, in sds


class Start(NamedTuple):
    """A Gaussian to start from."""

    mean: Float[Array, " d"]
    factor: Float[Array, "d d"]


class PointSystem(eqx.Module):
    """A function and the points on which its expectations are taken; x = (Sigma^-1 mu, Sigma^-1) as for all systems."""

    target: FunctionTarget
    points: Float[Array, "d m"]
    memory: ClassVar[int] = 8
    whole_residual: ClassVar[bool] = True

    @property
    def compiles_quickly(self) -> bool:
        """Yes: what a user waits for is the compiler."""
        return True

    @property
    def dimension(self) -> int:
        """The length of theta."""
        return self.points.shape[0]

    def start(self, start: Start) -> Packed:
        """Lay a Gaussian's natural parameters into one array."""
        T = solve_triangular(start.factor, jnp.eye(self.dimension), lower=True).T  # Sigma^-1 = T T' with T = C^-T
        precision = T @ T.T
        return Packed(jnp.zeros((0, 0)), jnp.concatenate([precision @ start.mean, precision.reshape(-1)]))

    def gaussian(self, x: Packed) -> CovarianceGaussian:
        """Return the Gaussian at x."""
        mean, R, _ = self._moments(x)
        upper = jnp.linalg.qr(R, mode="r")  # Sigma = R' R
        signs = jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0)
        return CovarianceGaussian(mean, DenseFactor((upper * signs[:, None]).T))

    def _moments(self, x: Packed) -> tuple[Float[Array, " d"], Float[Array, "d d"], Float[Array, "d d"]]:
        """Return the mean, R and T with Sigma = R' R, R = T^-1, T T' being the precision."""
        d = self.dimension
        T = jnp.linalg.cholesky(x.shared[d:].reshape(d, d))
        R = solve_triangular(T, jnp.eye(d), lower=True)
        return R.T @ (R @ x.shared[:d]), R, T

    def evaluate(self, x: Packed) -> Evaluated:
        """Return x, the full step from it, the residual and the bound."""
        mean, R, T = self._moments(x)
        d = self.dimension
        value, g, curvature = whitened_expectation(self.target.value, mean, R, self.points)
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(curvature))
        A = jnp.where(finite, -curvature, jnp.eye(d))
        a, V = jnp.linalg.eigh(A)
        step = (V.T @ jnp.where(finite, g, 0.0)) / jnp.maximum(jnp.abs(a), 1.0 / WIDEST)
        step = step * jnp.minimum(1.0, FURTHEST * jnp.sqrt(d) / jnp.maximum(jnp.linalg.norm(step), 1e-300))
        moved = mean + R.T @ (V @ step)
        inside = T @ V
        precision = (inside * jnp.clip(a, 1.0 / WIDEST, WIDEST)) @ inside.T
        G = jnp.concatenate([precision @ moved, precision.reshape(-1)])
        residual = jnp.concatenate([g, ((A - jnp.eye(d)) / jnp.sqrt(2.0)).reshape(-1)])
        entropy = 0.5 * d * (1 + jnp.log(2 * jnp.pi)) - jnp.sum(jnp.log(jnp.diagonal(T)))
        bound = jnp.where(finite, value + entropy, jnp.nan)
        return Evaluated(x, Packed(x.local, G), Packed(x.local, residual), bound)
