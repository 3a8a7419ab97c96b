"""Priors as terms: normals, densities of sds and correlations."""
