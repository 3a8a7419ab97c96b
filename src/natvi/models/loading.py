"""Saved and pickled fits come back as results."""

import copyreg
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from natvi.models.deep.glm_fit import DeepGlmFit
from natvi.models.density.posterior import DensityFit
from natvi.models.file_check import check_contents
from natvi.models.linear.posterior import GlmFit
from natvi.models.mixed.posterior import MixedFit
from natvi.result import Result
from natvi.result.result import KIND
from natvi.run import storage

MODELS = {"deep_glm": DeepGlmFit, "density": DensityFit, "glm": GlmFit, "glmm": MixedFit}


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
    return Result.restore(MODELS[document["model"]].restore(arrays, document), arrays, document)


def _reduce(result: Result) -> tuple[Callable[..., Result], tuple[Any, ...]]:
    return rebuild, result.contents()


copyreg.pickle(Result, _reduce)  # so that results travel between processes, with what `save` keeps
