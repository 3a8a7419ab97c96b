"""Rows of many processes, or larger than memory, behind a formula: one survey, then pieces as arrays."""
