"""A fitted log-density back from its stored form."""

from typing import Any

import numpy as np

from natvi.models.density.posterior import DensityFit
from natvi.result.file_check import check_contents, is_count, is_flag, is_lists, is_names, is_shapes, is_texts

FIELDS = {
    "leaves": is_names,
    "shapes": is_shapes,
    "free_leaves": is_names,
    "free_shapes": is_shapes,
    "bijectors": is_texts,
    "corrected": is_flag,
    "num_points": is_count,
    "coords": is_lists,
    "dims": is_lists,
}


def check(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
    """Raise unless the file holds what a fitted log-density stores."""
    check_contents(arrays, document, FIELDS)


def restore(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> DensityFit:
    """Rebuild the model."""
    return DensityFit.restore(arrays, document)
