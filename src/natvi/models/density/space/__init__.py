"""Constraints, names, and the way between a flat vector and a pytree."""

from natvi.models.density.space import bijectors as bijectors
