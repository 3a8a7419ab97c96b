"""Data sets of the paper and of first examples, each ready for its model formula."""

from natvi.data.diabetes import load_diabetes
from natvi.data.embedded import (
    load_contraception,
    load_crabs,
    load_epilepsy,
    load_hers,
    load_sleepstudy,
    load_toenail,
)

__all__ = [
    "load_contraception",
    "load_crabs",
    "load_diabetes",
    "load_epilepsy",
    "load_hers",
    "load_sleepstudy",
    "load_toenail",
]
