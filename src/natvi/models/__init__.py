"""Models that write the target for you: formula in, posterior out."""

from natvi.result.registry import register_formulas

register_formulas("natvi.models.formulas")
