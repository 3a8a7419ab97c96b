"""Saved fits come back as results."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np

from natvi import models
from natvi.result import Result, registry
from natvi.result.result import KIND
from natvi.run import storage


def load(path: str | Path) -> Result:
    """Load a fit saved by `Result.save`; nothing in the file is executed."""
    arrays, document = storage.read(path, KIND)
    kind = document.get("model") if isinstance(document, dict) else None
    _ask_models()
    if kind in registry.OWN_DOORS:
        raise storage.StorageError(
            f"{path} holds the weights of a net, whose function no file keeps. Load it with that: "
            f"{registry.OWN_DOORS[kind]}."
        )
    module = registry.find_module(kind)
    if module is None:
        raise storage.StorageError(
            f"{path} holds a model of kind {kind!r}, which this natvi does not know; upgrade it."
        )
    try:
        module.check(arrays, document)
        return rebuild(arrays, document)
    except Exception as error:  # whatever a forged file leads to
        raise storage.StorageError(
            f"{path} does not hold a fit that this natvi can rebuild ({type(error).__name__}: {error}). It was made by "
            "another version or another program: fit the model again, or upgrade natvi."
        ) from error


def rebuild(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> Result:
    """Make a result of what `Result.contents` gave."""
    _ask_models()
    model = registry.find_module(document["model"]).restore(arrays, document)
    return Result.restore(model, arrays, document)


def _ask_models() -> None:
    """Import every sub-room of models, but not what is in it: each adds its kinds to the registry."""
    for room in iter_modules(models.__path__):
        if room.ispkg:
            import_module(f"natvi.models.{room.name}")
