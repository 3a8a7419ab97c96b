"""The kinds of models that a file may hold: a model adds itself, by the module that makes it of stored parts.

Such a module has two functions of arrays and a JSON document: `check`, which raises unless they are what a fit of this
kind stores, and `restore`, which makes the fitted model. It is imported when such a file is loaded.
"""

from importlib import import_module
from typing import Any

MODULES: dict[str, str] = {}
OWN_DOORS: dict[str, str] = {}
FORMULAS: list[str] = []


def register(kind: str, module: str) -> None:
    """Add a kind of model: the word in its files, and the module that checks and restores it."""
    MODULES[kind] = module


def register_door(kind: str, door: str) -> None:
    """Add a kind of model whose files need more than themselves; `door` is the call that loads them."""
    OWN_DOORS[kind] = door


def find_module(kind: Any) -> Any:
    """Return the module of a kind of model, or None where it is not known."""
    return import_module(MODULES[kind]) if isinstance(kind, str) and kind in MODULES else None


def register_formulas(module: str) -> None:
    """Say which module describes models by formulas: its `describe` takes a formula, data and options."""
    FORMULAS[:] = [module]


def describe(formula: str, data: Any, **options: Any) -> Any:
    """Describe a model by a formula, with random effects or without."""
    return import_module(FORMULAS[0]).describe(formula, data, **options)
