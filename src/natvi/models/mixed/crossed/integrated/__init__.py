"""Sds, correlations and dispersion integrated numerically; given them the rest is the best Gaussian."""
