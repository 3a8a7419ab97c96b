"""Saved fits come back as results."""

from pathlib import Path

from natvi.fit import storage
from natvi.models.glm_fit import GlmFit
from natvi.models.mixed_fit import MixedFit
from natvi.result import Result
from natvi.result.result import KIND

MODELS = {"glm": GlmFit, "glmm": MixedFit}


def load(path: str | Path) -> Result:
    """Load a fit saved by `Result.save`; nothing in the file is executed."""
    arrays, document = storage.read(path, KIND)
    name = document.get("model")
    if name not in MODELS:
        raise storage.StorageError(
            f"{path} holds a model of kind {name!r}, which this natvi does not know; upgrade it."
        )
    try:
        return Result.restore(MODELS[name].restore(arrays, document), arrays, document)
    except (KeyError, TypeError, ValueError) as error:
        raise storage.StorageError(
            f"{path} does not hold a fit that this natvi can rebuild ({type(error).__name__}: {error}). It was made by "
            "another version or another program: fit the model again, or upgrade natvi."
        ) from error
