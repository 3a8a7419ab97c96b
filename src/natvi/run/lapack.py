"""LAPACK for compiled programs, without the rest of SciPy.

JAX finds the routines in two modules of `scipy.linalg`. To import the package around them takes ten times as long, and
nothing else of it is needed. So an empty package of that name stands in its place meanwhile, where no other thread
could see it, and where it has not been imported anyway.
"""

import importlib.util
import sys
import threading
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
from jaxlib.lapack import prepare_lapack_call

PACKAGE = "scipy.linalg"
_found: list[ModuleType] = []  # the routines lie in what these have loaded


@cache
def find_lapack() -> None:
    """Tell JAX where LAPACK is; a second call does nothing."""
    scipy = importlib.util.find_spec("scipy")
    places = None if scipy is None else scipy.submodule_search_locations
    if not places or PACKAGE in sys.modules or threading.active_count() > 1:
        _prepare()
        return
    stand_in = ModuleType(PACKAGE)
    stand_in.__path__ = [str(Path(place) / "linalg") for place in places]
    sys.modules[PACKAGE] = stand_in
    try:
        _prepare()
    except (ImportError, AttributeError):
        _clear()
        _prepare()
    finally:
        _clear()


def _prepare() -> None:
    prepare_lapack_call("potrf_ffi", np.dtype(np.float64))


def _clear() -> None:
    """Leave `scipy.linalg` to be imported whole by whoever needs it."""
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        _found.append(sys.modules.pop(name))
    scipy = sys.modules.get("scipy")
    if scipy is not None and "linalg" in vars(scipy):
        del scipy.linalg
