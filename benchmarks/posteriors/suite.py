"""All members of the suite, and members that others bring in a module of their own."""

import importlib.util
from functools import cache
from pathlib import Path

from benchmarks.posteriors import hierarchies, regressions, series, shapes
from benchmarks.posteriors.posterior import Posterior

MEMBERS: tuple[Posterior, ...] = (
    *regressions.MEMBERS,
    *hierarchies.MEMBERS,
    *series.MEMBERS,
    *shapes.MEMBERS,
)
OWN = "suite"  # in the place of the path of a module


@cache
def members(module: str = OWN) -> dict[str, Posterior]:
    """Return the members by slug: of the suite, or of a Python file that has a list MEMBERS of `Posterior`s.

    Raises:
        ValueError: For a file that cannot be used, with what it needs.
    """
    found = MEMBERS if module == OWN else _of_file(Path(module))
    return {member.slug: member for member in found}


def find_member(module: str, slug: str) -> Posterior:
    """Return one member."""
    return members(module)[slug]


def _of_file(path: Path) -> tuple[Posterior, ...]:
    if not path.is_file():
        raise ValueError(f"there is no file {path}: give a Python file with a list MEMBERS.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = tuple(getattr(module, "MEMBERS", ()))
    if not found or not all(isinstance(member, Posterior) for member in found):
        raise ValueError(f"{path} must hold MEMBERS, a list of benchmarks.posteriors.posterior.Posterior.")
    return found
