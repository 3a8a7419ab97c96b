"""Mixed models."""

from natvi.result.registry import register

register("glmm", "natvi.models.mixed.storage")
