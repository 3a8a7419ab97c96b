"""Gaussian approximations, one file per structure."""

from natvi.gaussian.arrow_precision import ArrowPrecision as ArrowPrecision
