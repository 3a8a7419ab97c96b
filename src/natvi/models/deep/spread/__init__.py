"""Nets whose examples lie in many processes."""
