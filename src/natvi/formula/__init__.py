"""Formulas and tables: from text and a data frame to columns, and the recipe that rebuilds them.

formulae imports SciPy's splines and eigenvalue solvers at its top, which takes longer than all the rest of it, and few
formulas have a spline. While formulae is imported, stand-ins take their places; what it took from them imports the
function that is meant when it is first called. SciPy itself is left as it is.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

LATER = ("scipy.interpolate", "scipy.sparse", "scipy.sparse.linalg")


class _StandIn(ModuleType):
    """A module whose functions are imported when they are called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        home = self.__name__

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(importlib.import_module(home), name)(*args, **kwargs)

        return call


def _import_formulae() -> None:
    """Import formulae; a second call does nothing."""
    if "formulae" in sys.modules:
        return
    places = {name: _StandIn(name) for name in LATER if name not in sys.modules}
    sys.modules.update(places)
    try:
        importlib.import_module("formulae")
    finally:
        for name, stand_in in places.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


_import_formulae()  # before any module here does
