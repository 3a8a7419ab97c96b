"""Gaussian approximations: a parametrization (covariance or precision factor) times a pattern."""

from natvi.gaussian.arrow_precision import ArrowPrecision as ArrowPrecision
from natvi.gaussian.covariance import CovarianceGaussian as CovarianceGaussian
from natvi.gaussian.precision import PrecisionGaussian as PrecisionGaussian
from natvi.gaussian.starts import arrow_precision as arrow_precision
from natvi.gaussian.starts import block_covariance as block_covariance
from natvi.gaussian.starts import dense_covariance as dense_covariance
from natvi.gaussian.starts import dense_precision as dense_precision
from natvi.gaussian.starts import diagonal_covariance as diagonal_covariance
from natvi.gaussian.starts import local_global_covariance as local_global_covariance
from natvi.gaussian.starts import pattern_covariance as pattern_covariance
from natvi.gaussian.starts import pattern_precision as pattern_precision
