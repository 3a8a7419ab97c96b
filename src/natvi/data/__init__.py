"""Data sets of the paper and of first examples, each ready for its model formula."""

from natvi.data.a4a import load_a4a
from natvi.data.diabetes import load_diabetes
from natvi.data.embedded import (
    load_contraception,
    load_crabs,
    load_epilepsy,
    load_hers,
    load_sleepstudy,
    load_toenail,
)
from natvi.data.german import load_german, load_german_frame
from natvi.data.glm_data import GlmData

__all__ = [
    "GlmData",
    "load_a4a",
    "load_contraception",
    "load_crabs",
    "load_diabetes",
    "load_epilepsy",
    "load_german",
    "load_german_frame",
    "load_hers",
    "load_sleepstudy",
    "load_toenail",
]
