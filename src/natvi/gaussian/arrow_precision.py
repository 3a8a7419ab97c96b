"""N(mu, (T T')^-1) with T on the arrow pattern: the paper's sparse precision (Section 7.2).

theta_i given theta_g is Gaussian with precision T_i T_i' and regresses on theta_g through T_gi; theta_g has
precision T_g T_g'. No d x d matrix is ever formed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natvi.linalg import ArrowFactor, ArrowMatrix, ArrowVector, GroupedRows, small_blocks
from natvi.linalg.grouped_rows import RowMoments
from natvi.over_hosts import add_up


class ArrowPrecision(NamedTuple):
    """The Gaussian: its mean, the factor T, and R = T_g^-1, which every marginal needs."""

    mean: ArrowVector
    factor: ArrowFactor
    inverse_shared: Float[Array, "g g"]

    @classmethod
    def from_factor(cls, mean: ArrowVector, factor: ArrowFactor) -> "ArrowPrecision":
        """Build the Gaussian from its mean and factor."""
        eye = jnp.eye(factor.shared.shape[0])
        return cls(mean, factor, solve_triangular(factor.shared, eye, lower=True))

    @classmethod
    def from_natural(cls, linear: ArrowVector, precision: ArrowMatrix) -> "ArrowPrecision":
        """Build the Gaussian from its natural parameters Sigma^-1 mu and Sigma^-1."""
        factor = precision.cholesky()
        return cls.from_factor(factor.solve_transposed(factor.solve(linear)), factor)

    def block(self, start: Int[Array, ""] | int, size: int) -> "ArrowPrecision":
        """Return the Gaussian of the groups `start` to `start + size` and the shared coordinates."""

        def cut(a: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(a, start, size, axis=-1)

        mean = ArrowVector(cut(self.mean.local), self.mean.shared)
        factor = ArrowFactor(cut(self.factor.local), cut(self.factor.cross), self.factor.shared)
        return ArrowPrecision(mean, factor, self.inverse_shared)

    def marginals(self) -> "ArrowPrecision":
        """Return itself: it is what a target with groups asks for."""
        return self

    @property
    def dimension(self) -> int:
        """The length of theta."""
        return self.mean.local.size + self.mean.shared.size

    def push(self, z: ArrowVector) -> ArrowVector:
        """Return theta = mu + T^-T z."""
        move = self.factor.solve_transposed(z)
        return ArrowVector(self.mean.local + move.local, self.mean.shared + move.shared)

    def sample(self, key: PRNGKeyArray) -> ArrowVector:
        """Draw one theta."""
        local, shared = jax.random.split(key)
        z = ArrowVector(
            jax.random.normal(local, self.mean.local.shape), jax.random.normal(shared, self.mean.shared.shape)
        )
        return self.push(z)

    def log_prob(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return log q(theta)."""
        error = ArrowVector(theta.local - self.mean.local, theta.shared - self.mean.shared)
        z = self.factor.transposed_product(error)
        squares = jnp.sum(z.local**2) + jnp.sum(z.shared**2)
        return -0.5 * self.dimension * jnp.log(2 * jnp.pi) + self.factor.log_determinant() - 0.5 * squares

    def entropy(self) -> Float[Array, ""]:
        """Return -E log q = (d/2)(1 + log 2 pi) - log |T|."""
        size = add_up(self.mean.local.size) + self.mean.shared.size
        return 0.5 * size * (1 + jnp.log(2 * jnp.pi)) - self.factor.log_determinant()

    def covariance_product(self, x: ArrowVector) -> ArrowVector:
        """Return Sigma x."""
        return self.factor.solve_transposed(self.factor.solve(x))

    def shared_covariance(self) -> Float[Array, "g g"]:
        """Return Cov(theta_g) = T_g^-T T_g^-1."""
        return self.inverse_shared.T @ self.inverse_shared

    def shared_variances(self) -> Float[Array, " g"]:
        """Return the variances of theta_g."""
        return jnp.sum(self.inverse_shared**2, axis=0)

    def row_moments(self, design: GroupedRows, with_shared: tuple[int, ...] = ()) -> RowMoments:
        """Return the marginal moments of every row of a design."""
        return design.moments(self.mean, self.factor, self.inverse_shared, with_shared)

    def group_moments(self, start: int, stop: int) -> tuple[Float[Array, "k n"], Float[Array, "k k n"]]:
        """Return mean and covariance of (theta_i, theta_g[start:stop]) for every group."""
        n = self.mean.local.shape[1]
        w = stop - start
        own = small_blocks.solve_upper(self.factor.local, small_blocks.identities(self.factor.local))  # T_i^-T
        # theta_i - mu_i = -B_i (theta_g - mu_g) + T_i^-T z_i with B_i = T_i^-T T_gi';  whitened: R B_i'
        B = small_blocks.solve_upper(self.factor.local, jnp.swapaxes(self.factor.cross, 0, 1))
        whitened = -jnp.einsum("hg,rgn->hrn", self.inverse_shared, B)
        columns = self.inverse_shared[:, start:stop]
        local = jnp.einsum("ikn,jkn->ijn", own, own) + jnp.einsum("hin,hjn->ijn", whitened, whitened)
        mixed = jnp.einsum("hin,hw->iwn", whitened, columns)
        corner = jnp.broadcast_to((columns.T @ columns)[..., None], (w, w, n))
        covariance = jnp.concatenate(
            [jnp.concatenate([local, mixed], axis=1), jnp.concatenate([mixed.swapaxes(0, 1), corner], axis=1)]
        )
        shared = jnp.broadcast_to(self.mean.shared[start:stop, None], (w, n))
        return jnp.concatenate([self.mean.local, shared]), covariance

    def marginal_sds(self) -> ArrowVector:
        """Return the standard deviation of every coordinate."""
        return self.factor.inverse_column_norms()
