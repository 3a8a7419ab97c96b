"""The structures, each as a Gaussian to start from: a given mean and a multiple of the identity as factor."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.gaussian.covariance import CovarianceGaussian
from natvi.gaussian.precision import PrecisionGaussian
from natvi.linalg import (
    ArrowFactor,
    ArrowVector,
    BlockFactor,
    ClosedPattern,
    DenseFactor,
    DiagonalFactor,
    LocalGlobalFactor,
    PatternFactor,
)


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


def local_global_covariance(mean: ArrowVector, sd: float = 1.0, local_sd: float = 1.0) -> CovarianceGaussian:
    """Return independent groups, independent of the shared coordinates: the blocks of RVB (paper, Section 8.5)."""
    return CovarianceGaussian(mean, LocalGlobalFactor.identity(mean, local=local_sd, shared=sd))


def arrow_precision(mean: ArrowVector, sd: float = 1.0) -> PrecisionGaussian:
    """Return local blocks independent given the shared coordinates (paper, Section 7.2)."""
    (r, n), g = mean.local.shape, mean.shared.shape[0]
    local = jnp.repeat(jnp.eye(r)[..., None] / sd, n, axis=2)
    return PrecisionGaussian(mean, ArrowFactor(local, jnp.zeros((g, r, n)), jnp.eye(g) / sd))


def pattern_covariance(mean: Float[Array, " d"], mask: np.ndarray, sd: float = 1.0) -> CovarianceGaussian:
    """Return a covariance whose factor C lives on a closed pattern, given as a matrix of zeros and ones."""
    return CovarianceGaussian(mean, PatternFactor.identity(_pattern(mean, mask), sd))


def pattern_precision(mean: Float[Array, " d"], mask: np.ndarray, sd: float = 1.0) -> PrecisionGaussian:
    """Return a precision whose factor T lives on a closed pattern, given as a matrix of zeros and ones."""
    return PrecisionGaussian(mean, PatternFactor.identity(_pattern(mean, mask), 1.0 / sd))


def _pattern(mean: Float[Array, " d"], mask: np.ndarray) -> ClosedPattern:
    pattern = ClosedPattern.from_array(mask)
    if len(pattern.entries) != mean.shape[0]:
        raise ValueError(f"The pattern is for {len(pattern.entries)} coordinates; the mean has {mean.shape[0]}.")
    return pattern
