"""The plan of the house, checked: imports point down, files stay short, the library keeps quiet.

`docs/design.md` tells why. The whole rule on imports is the list ROOMS: a room may import itself and the
rooms before it. Imports inside functions count as well: an arrow that is hidden still points somewhere.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "src" / "natvi"

ROOMS = [
    *("typing", "x64", "linalg", "quadrature", "formula", "families"),
    *("target", "gaussian"),
    *("derivatives", "natural", "optimize"),
    *("run", "metrics", "show"),
    *("judge", "result"),
    *("recipes", "paper", "models", "reference", "bridges", "data"),
    *("cli", "__main__"),
    "__init__",
]
MAY_PRINT = {"cli", "show"}
MAY_NEED_EXTRAS = {"bridges", "reference"}
LONGEST_FILE = 400
IMPORT_NAMES = {"scikit-learn": "sklearn", "pre-commit": "pre_commit", "mkdocs-material": "material"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path, package: Path = PACKAGE) -> str:
    """Return the room a file belongs to: the first part of its path below the package."""
    first = path.relative_to(package).parts[0]
    return first.removesuffix(".py")


def imported_rooms(path: Path, package: Path = PACKAGE) -> Iterator[tuple[str, int]]:
    """Yield (room, line) for everything a file imports from its own package."""
    root = package.name
    here = [root, *path.relative_to(package).parent.parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            source = base + (node.module.split(".") if node.module else [])
            names = [[*source, alias.name] for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == root:
                yield (name[1] if is_room(name[1:], package) else "__init__"), node.lineno


def is_room(name: list[str], package: Path) -> bool:
    """Tell whether a dotted name below the package begins with a room, not with an exported name."""
    return bool(name) and (name[0] in ROOMS or (package / name[0]).is_dir() or (package / f"{name[0]}.py").is_file())


def upward_imports(package: Path = PACKAGE) -> list[str]:
    """Return a line for every import that points up, and for every room without a place in the order."""
    faults = []
    for path in sorted(package.rglob("*.py")):
        room = room_of(path, package)
        where = path.relative_to(package)
        if room not in ROOMS:
            faults.append(f"{where}: room {room!r} has no place in ROOMS")
            continue
        for other, line in imported_rooms(path, package):
            if other not in ROOMS or ROOMS.index(other) > ROOMS.index(room):
                faults.append(f"{where}:{line}: {room} must not import {other}")
    return faults


def top_level(nodes: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported, those for type checkers left out."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from top_level(node.orelse)
            continue
        yield node
        for field in ("body", "orelse", "finalbody"):
            yield from top_level(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from top_level(handler.body)


def imported_at_top(source: str) -> set[str]:
    """Return the first names of all absolute imports that run when a module is imported."""
    names = set()
    for node in top_level(ast.parse(source).body):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def optional_packages() -> set[str]:
    """Return the import names of all that pyproject.toml lists under an extra."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = [line for extra in project["optional-dependencies"].values() for line in extra]
    names = {re.split(r"[\[<>=!~; ]", line)[0] for line in requirements} - {project["name"]}
    return {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names}


def print_calls(source: str) -> list[int]:
    """Return the lines on which `print` is called; strings and docstrings do not count."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def unchecked_protocols(source: str) -> list[str]:
    """Return the names of all protocols that are not decorated with `runtime_checkable`."""
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    protocols = [node for node in classes if any("Protocol" in ast.unparse(base) for base in node.bases)]
    return [
        node.name
        for node in protocols
        if not any("runtime_checkable" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def test_there_is_something_to_check():
    assert PACKAGE / "__init__.py" in MODULES


def test_imports_point_down():
    assert upward_imports() == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_extras_are_imported_only_where_they_are_needed(path):
    if room_of(path) not in MAY_NEED_EXTRAS:
        assert imported_at_top(path.read_text("utf-8")) & optional_packages() == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_short(path):
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_library_does_not_print(path):
    if room_of(path) not in MAY_PRINT:
        assert print_calls(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_protocols_can_be_checked_at_run_time(path):
    # beartype, which checks every call in the tests, refuses a protocol without @runtime_checkable
    assert unchecked_protocols(path.read_text("utf-8")) == []


# --- the checkers catch what they are for ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "source", "culprit"),
    [
        ("linalg/arrow.py", "from natvi.run.loop import run", "run"),
        ("linalg/arrow.py", "import natvi.models", "models"),
        ("linalg/arrow.py", "def f():\n    from natvi import result", "result"),
        ("linalg/arrow.py", "from ..target import term", "target"),
        ("linalg/arrow.py", "from .. import gaussian", "gaussian"),
        ("target/term.py", "from natvi.gaussian import dense", "gaussian"),
        ("derivatives/exact.py", "from natvi.natural import direction", "natural"),
        ("run/loop.py", "import natvi", "__init__"),
        ("run/loop.py", "from natvi import glmm", "__init__"),
        ("x64.py", "from .linalg import arrow", "linalg"),
    ],
)
def test_a_planted_upward_import_is_caught(tmp_path, file, source, culprit):
    package = plant(tmp_path, file, source)
    room = file.partition("/")[0].removesuffix(".py")
    (fault,) = upward_imports(package)
    assert fault.startswith(file) and fault.endswith(f"{room} must not import {culprit}")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("gaussian/dense.py", "from natvi.target import term\nfrom natvi import linalg, x64"),
        ("natural/direction.py", "from natvi.derivatives.exact import elbo"),
        ("result/result.py", "from natvi.show import plots\nfrom ..run import loop\nfrom . import outcome"),
        ("cli.py", "from natvi.models.mixed import door\nimport natvi.data"),
        ("__init__.py", "from natvi.cli import main\nfrom .result import Result\nfrom . import data"),
        ("linalg/arrow.py", "import jax\nfrom fit import natvi"),
    ],
)
def test_downward_imports_are_allowed(tmp_path, file, source):
    assert upward_imports(plant(tmp_path, file, source)) == []


def test_a_room_without_a_place_is_caught(tmp_path):
    assert upward_imports(plant(tmp_path, "utils.py", "")) == ["utils.py: room 'utils' has no place in ROOMS"]


def plant(folder: Path, file: str, source: str) -> Path:
    """Write one file of a package called natvi and return the package."""
    path = folder / "natvi" / file
    path.parent.mkdir(parents=True)
    path.write_text(source, "utf-8")
    return folder / "natvi"


def test_top_level_imports_are_told_from_lazy_ones():
    assert imported_at_top("import jax\ntry:\n    from numpyro import infer\nexcept ImportError:\n    import pymc") == {
        "jax",
        "numpyro",
        "pymc",
    }
    assert imported_at_top("def f():\n    import numpyro") == set()
    assert imported_at_top("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pymc") == {"typing"}
    assert {"numpyro", "pymc", "sklearn", "beartype"} <= optional_packages()
    assert not {"natvi", "jax", "pandas", "matplotlib"} & optional_packages()


def test_print_in_a_docstring_is_not_a_call():
    assert print_calls('"""\n>>> print(1)\n"""\nprint(2)') == [4]


def test_an_unchecked_protocol_is_caught():
    assert unchecked_protocols("class Term(Protocol): ...") == ["Term"]
    assert unchecked_protocols("@runtime_checkable\nclass Term(Protocol): ...") == []
