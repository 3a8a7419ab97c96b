"""Comparators that stand outside natvi's own method: NUTS and a normalizing flow."""

from natvi.reference.nuts import NutsDraws, nuts
from natvi.reference.real_nvp import FlowFit, real_nvp

__all__ = ["FlowFit", "NutsDraws", "nuts", "real_nvp"]
