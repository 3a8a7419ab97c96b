"""A point as a degenerate Gaussian, so that a term's expectation gives its value, gradient and Hessian there."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natvi.linalg import ArrowVector, GroupedRows
from natvi.linalg.crossed.rows import CrossedRows
from natvi.linalg.grouped_rows import RowMoments


class PointMass(NamedTuple):
    """All mass at one theta."""

    mean: ArrowVector

    def marginals(self) -> "PointMass":
        """Return itself: it is what a target with groups asks for."""
        return self

    def row_moments(self, design: GroupedRows | CrossedRows, with_shared: tuple[int, ...]) -> RowMoments:
        """Return the predictors, without variance."""
        eta = design.predictor(self.mean)
        return RowMoments(eta, jnp.zeros_like(eta), jnp.zeros((len(with_shared), *eta.shape)))

    def group_moments(self, start: int, stop: int) -> tuple[Float[Array, "k n"], Float[Array, "k k n"]]:
        """Return (theta_i, theta_g[start:stop]) for every group, without covariance."""
        r, n = self.mean.local.shape
        width = stop - start
        shared = jnp.broadcast_to(self.mean.shared[start:stop, None], (width, n))
        return jnp.concatenate([self.mean.local, shared]), jnp.zeros((r + width, r + width, n))

    def shared_variances(self) -> Float[Array, " g"]:
        """Return zeros."""
        return jnp.zeros_like(self.mean.shared)

    def shared_covariance(self) -> Float[Array, "g g"]:
        """Return zeros."""
        return jnp.zeros((self.mean.shared.shape[0],) * 2)

    def block(self, start: Int[Array, ""] | int, size: int) -> "PointMass":
        """Return the point of the groups `start` to `start + size` and the shared coordinates."""
        local = jax.lax.dynamic_slice_in_dim(self.mean.local, start, size, axis=-1)
        return PointMass(ArrowVector(local, self.mean.shared))
