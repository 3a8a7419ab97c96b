"""Expectations of functions of one Gaussian variable."""
