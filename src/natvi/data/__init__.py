"""Data sets of the paper and of first examples, each ready for its model formula."""

from natvi.data.a4a import load_a4a, load_a9a
from natvi.data.diabetes import load_diabetes
from natvi.data.embedded import (
    load_contraception,
    load_crabs,
    load_epilepsy,
    load_sleepstudy,
)
from natvi.data.german import load_german, load_german_frame
from natvi.data.glm_data import GlmData
from natvi.data.images import Images, load_cifar10, load_fashion_mnist, load_mnist
from natvi.data.protein import load_protein
from natvi.data.trials import load_hers, load_toenail

__all__ = [
    "GlmData",
    "Images",
    "load_a4a",
    "load_a9a",
    "load_cifar10",
    "load_contraception",
    "load_crabs",
    "load_diabetes",
    "load_epilepsy",
    "load_fashion_mnist",
    "load_german",
    "load_german_frame",
    "load_hers",
    "load_mnist",
    "load_protein",
    "load_sleepstudy",
    "load_toenail",
]
