"""The five structures, each as a Gaussian to start from: a given mean and a multiple of the identity as factor."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.gaussian.covariance import CovarianceGaussian
from natvi.gaussian.precision import PrecisionGaussian
from natvi.linalg import ArrowFactor, ArrowVector, BlockFactor, DenseFactor, DiagonalFactor


def diagonal_covariance(mean: Float[Array, " d"], sd: float = 1.0) -> CovarianceGaussian:
    """Return independent coordinates."""
    return CovarianceGaussian(mean, DiagonalFactor.identity(mean.shape[0], sd))


def dense_covariance(mean: Float[Array, " d"], sd: float = 1.0) -> CovarianceGaussian:
    """Return a full covariance, held by its factor C."""
    return CovarianceGaussian(mean, DenseFactor.identity(mean.shape[0], sd))


def dense_precision(mean: Float[Array, " d"], sd: float = 1.0) -> PrecisionGaussian:
    """Return a full covariance, held by the factor T of its inverse."""
    return PrecisionGaussian(mean, DenseFactor.identity(mean.shape[0], 1.0 / sd))


def block_covariance(mean: Float[Array, " d"], sizes: tuple[int, ...], sd: float = 1.0) -> CovarianceGaussian:
    """Return independent blocks of the given sizes (paper, Section 7.1)."""
    if sum(sizes) != mean.shape[0]:
        raise ValueError(f"Blocks of sizes {sizes} cover {sum(sizes)} coordinates; the mean has {mean.shape[0]}.")
    return CovarianceGaussian(mean, BlockFactor.identity(tuple(sizes), sd))


def arrow_precision(mean: ArrowVector, sd: float = 1.0) -> PrecisionGaussian:
    """Return local blocks independent given the shared coordinates (paper, Section 7.2)."""
    (r, n), g = mean.local.shape, mean.shared.shape[0]
    local = jnp.repeat(jnp.eye(r)[..., None] / sd, n, axis=2)
    return PrecisionGaussian(mean, ArrowFactor(local, jnp.zeros((g, r, n)), jnp.eye(g) / sd))
