"""Mixed models."""

from natvi.result.registry import register

register("glmm", "natvi.models.mixed.storage")
register("glmm_batches", "natvi.models.mixed.batches.posterior")
register("glmm_crossed", "natvi.models.mixed.crossed.storage")
