"""Long computations are made once: what they found is kept in a folder outside the repository.

The folder is named by the environment variable NATVI_REFERENCE, by default ~/.cache/natvi/reference. A file's name
holds a digest of all settings, so that other settings are another file; deleting files is always safe.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "NATVI_REFERENCE"
DEFAULT = "~/.cache/natvi/reference"

Arrays = dict[str, Any]


def folder() -> Path:
    """Return the folder, made if it is not there."""
    path = Path(os.environ.get(VARIABLE) or DEFAULT).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


def place(name: str, settings: dict[str, Any]) -> Path:
    """Return the file for a computation with these settings."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    return folder() / f"{name}-{digest}.npz"


def recall(name: str, settings: dict[str, Any], compute: Callable[[], Arrays]) -> Arrays:
    """Return what was computed with these settings, now or earlier: a dictionary of arrays.

    Args:
        name: Begins the file's name.
        settings: All that decides the outcome, as plain values.
        compute: Called if there is no such file yet.
    """
    path = place(name, settings)
    if not path.is_file():
        arrays = {key: np.asarray(value) for key, value in compute().items()}
        # written beside and moved: whoever is interrupted leaves no half file
        temporary = path.with_name(f".{path.stem}.{os.getpid()}.npz")
        np.savez(temporary, **arrays)  # type: ignore[arg-type]
        temporary.replace(path)
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
