"""Generalized linear models."""

from natvi.result.registry import register

register("glm", "natvi.models.linear.storage")
