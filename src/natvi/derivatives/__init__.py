"""Derivatives of the evidence lower bound."""

from natvi.derivatives.exact import exact_derivatives as exact_derivatives
