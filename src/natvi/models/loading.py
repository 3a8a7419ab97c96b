"""Saved fits come back as results."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from natvi.models.file_check import check_contents
from natvi.result import Result
from natvi.result.result import KIND
from natvi.run import storage

# kind of a model in a file -> module and class; imported when such a file is loaded
MODELS = {
    "deep_glm": ("deep.glm_fit", "DeepGlmFit"),
    "density": ("density.posterior", "DensityFit"),
    "glm": ("linear.posterior", "GlmFit"),
    "glmm": ("mixed.posterior", "MixedFit"),
}


def load(path: str | Path) -> Result:
    """Load a fit saved by `Result.save`; nothing in the file is executed."""
    arrays, document = storage.read(path, KIND)
    name = document.get("model") if isinstance(document, dict) else None
    if name == "bnn":
        raise storage.StorageError(
            f"{path} holds the weights of a net, whose function no file keeps. Load it with that: "
            "natvi.bnn(apply, params).load(path)."
        )
    if not isinstance(name, str) or name not in MODELS:
        raise storage.StorageError(
            f"{path} holds a model of kind {name!r}, which this natvi does not know; upgrade it."
        )
    try:
        check_contents(arrays, document)
        return rebuild(arrays, document)
    except Exception as error:  # whatever a forged file leads to
        raise storage.StorageError(
            f"{path} does not hold a fit that this natvi can rebuild ({type(error).__name__}: {error}). It was made by "
            "another version or another program: fit the model again, or upgrade natvi."
        ) from error


def rebuild(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> Result:
    """Make a result of what `Result.contents` gave."""
    module, name = MODELS[document["model"]]
    model = getattr(import_module(f"natvi.models.{module}"), name)
    return Result.restore(model.restore(arrays, document), arrays, document)
