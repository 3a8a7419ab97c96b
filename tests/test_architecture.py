"""The plan of the house, checked: imports point down, files stay short, the library keeps quiet.

`docs/design.md` tells why. The whole rule on imports is the list ROOMS: a room may import itself and the
rooms before it; inside a room, SUB_ROOMS. No modules import each other in a circle. Imports inside functions and for
type checkers count as well: an arrow that is hidden still points somewhere.
"""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "src" / "natvi"

ROOMS = [
    *("collector", "special", "typing", "x64", "over_hosts", "linalg", "quadrature", "formula", "families", "hosts"),
    *("target", "gaussian"),
    *("derivatives", "natural", "optimize"),
    *("run", "metrics", "show"),
    *("judge", "result"),
    *("recipes", "paper", "reference", "models", "bridges", "data"),
    *("cli", "__main__"),
    "__init__",
]
# what a sub-room may import of the other sub-rooms of its room; `models/loading.py` knows every model by name
SUB_ROOMS = {
    "target": {"priors": {"priors", "mixed"}, "mixed": {"mixed"}},
    "run": {
        "storage": {"storage"},
        "batches": {"batches"},
        "exact": {"storage", "exact"},
        "stochastic": {"storage", "batches", "stochastic"},
    },
    "models": {
        "regression": {"regression"},
        "linear": {"regression", "linear"},
        "mixed": {"regression", "mixed"},
        "density": {"regression", "density"},
    },
}
SHARED_FILES = {"target", "run"}  # rooms whose single files all their sub-rooms may import
LARGEST_FOLDER = 15
# What is still wrong. These lists only shrink: an entry that is no longer needed is an error too.
KNOWN_SIDEWAYS: set[tuple[str, str]] = set()
KNOWN_CYCLES: list[set[str]] = []
CROWDED_FOLDERS: dict[str, int] = {}
OPEN_CLASSES = ("linalg", "gaussian", "target")  # rooms to which structures, Gaussians and targets are added
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


def sideways_imports(package: Path = PACKAGE) -> set[tuple[str, str]]:
    """Return (file, sub-room) for every import between sub-rooms that does not follow SUB_ROOMS."""
    faults = set()
    for path in sorted(package.rglob("*.py")):
        here = sub_room(dotted_name(path, package))
        for name in imported_modules(path, package):
            there = sub_room(name)
            if not (here and there and here[0] == there[0]):
                continue
            is_file = there[1] not in SUB_ROOMS[there[0]]
            free = is_file and there[0] in SHARED_FILES
            if not free and there[1] not in SUB_ROOMS[here[0]].get(here[1], {there[1]}):
                faults.add((path.relative_to(package).as_posix(), there[1]))
    return faults


def sub_room(name: str) -> tuple[str, str] | None:
    """Return room and sub-room of a module in a room that has an order inside."""
    parts = name.split(".")[1:]
    return (parts[0], parts[1]) if len(parts) > 1 and parts[0] in SUB_ROOMS else None


def dotted_name(path: Path, package: Path = PACKAGE) -> str:
    """Return the dotted name of a module; a package's is that of its folder."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, package: Path = PACKAGE) -> Iterator[str]:
    """Yield every module that a file imports from its own package, inside functions and for types too."""
    known = module_names(package)
    here = [package.name, *path.relative_to(package).parent.parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            source = ".".join(base + (node.module.split(".") if node.module else []))
            # a name may be a module of the package or something that its __init__ exports
            names = [f"{source}.{alias.name}" if f"{source}.{alias.name}" in known else source for alias in node.names]
        else:
            continue
        yield from (name for name in names if name in known)


@cache
def module_names(package: Path) -> frozenset[str]:
    """Return the dotted names of all modules of a package."""
    return frozenset(dotted_name(file, package) for file in package.rglob("*.py"))


def import_cycles(package: Path = PACKAGE) -> set[frozenset[str]]:
    """Return the sets of modules that import each other, directly or through others."""
    graph = {dotted_name(path, package): set(imported_modules(path, package)) for path in package.rglob("*.py")}
    reached = {name: reachable(graph, name) for name in graph}
    together = {name: frozenset(n for n in reached[name] if name in reached[n]) for name in graph}
    return {names for names in together.values() if names}


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return all that can be reached in one step or more; a module that imports itself does not count."""
    seen, stack = set(), [name for name in graph[start] if name != start]
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            stack.extend(graph[name] - {name})
    return seen


def folder_sizes(package: Path = PACKAGE) -> dict[str, int]:
    """Return the number of files of every folder, those that only make it a package left out."""
    folders = [folder for folder in (package, *package.rglob("*")) if folder.is_dir() and folder.name != "__pycache__"]
    files = {folder: [file for file in folder.glob("*.py") if file.name != "__init__.py"] for folder in folders}
    return {str(folder.relative_to(package)): len(files[folder]) for folder in folders}


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


@cache
def concrete_classes(package: Path = PACKAGE) -> dict[str, str]:
    """Return the room of every factor, vector, Gaussian and target class; a protocol says a capability and is free."""
    found = {}
    for room in OPEN_CLASSES:
        for path in (package / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.unparse(base) for base in node.bases):
                    found[node.name] = room
    return found


def class_checks(path: Path, package: Path = PACKAGE) -> list[str]:
    """Return a line for each question which concrete class something is, asked outside the class's own room.

    A question with a comment that gives its reason, on its own line or the one above, may stay.
    """
    rooms, source = concrete_classes(package), path.read_text("utf-8")
    lines = source.splitlines()
    asked = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            about = ast.walk(node.args[1])
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
            about = [name for other in node.comparators for name in ast.walk(other)]
        elif isinstance(node, ast.MatchClass):
            about = ast.walk(node.cls)
        else:
            continue
        names = {getattr(part, "id", getattr(part, "attr", "")) for part in about}
        foreign = sorted(name for name in names if rooms.get(name, room_of(path, package)) != room_of(path, package))
        reason = "#" in lines[node.lineno - 1] or lines[node.lineno - 2].lstrip().startswith("#")
        if foreign and not reason:
            asked.append(f"line {node.lineno} asks for {', '.join(foreign)}")
    return asked


def offenders(fault: Callable[[Path], object], exempt: set[str] = frozenset()) -> list[str]:
    """Return a line for every file in which a checker finds a fault, but for rooms that are exempt."""
    found = [(path, fault(path)) for path in MODULES if room_of(path) not in exempt]
    return [f"{path.relative_to(PACKAGE)}: {fault}" for path, fault in found if fault]


def test_there_is_something_to_check():
    assert PACKAGE / "__init__.py" in MODULES


def test_imports_point_down():
    assert upward_imports() == []


def test_sub_rooms_import_in_order():
    assert sideways_imports() == KNOWN_SIDEWAYS


def test_no_cycle_but_those_that_are_known():
    cycles = import_cycles()
    assert [sorted(cycle) for cycle in cycles if not any(cycle <= known for known in KNOWN_CYCLES)] == []
    still = set().union(*cycles)
    assert [sorted(known - still) for known in KNOWN_CYCLES if known - still] == [], "free now: take them off the list"


def test_no_folder_is_a_drawer():
    assert {folder: count for folder, count in folder_sizes().items() if count > LARGEST_FOLDER} == CROWDED_FOLDERS


def test_extras_are_imported_only_where_they_are_needed():
    optional = optional_packages()
    assert offenders(lambda path: imported_at_top(path.read_text("utf-8")) & optional, MAY_NEED_EXTRAS) == []


def test_files_stay_short():
    def excess(path: Path) -> int:
        return max(0, len(path.read_text("utf-8").splitlines()) - LONGEST_FILE)

    assert offenders(excess) == []


def test_the_library_does_not_print():
    assert offenders(lambda path: print_calls(path.read_text("utf-8")), MAY_PRINT) == []


def test_protocols_can_be_checked_at_run_time():
    # beartype, which checks every call in the tests, refuses a protocol without @runtime_checkable
    assert offenders(lambda path: unchecked_protocols(path.read_text("utf-8"))) == []


def test_nobody_asks_which_structure_gaussian_or_target_it_has():
    # what depends on the class is a method or an attribute of the thing itself, or a protocol
    assert offenders(class_checks) == []


# --- the checkers catch what they are for ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "source", "culprit"),
    [
        ("linalg/arrow.py", "from natvi.run.exact.loop import run", "run"),
        ("linalg/arrow.py", "import natvi.models", "models"),
        ("linalg/arrow.py", "def f():\n    from natvi import result", "result"),
        ("linalg/arrow.py", "from ..target import term", "target"),
        ("linalg/arrow.py", "from .. import gaussian", "gaussian"),
        ("target/term.py", "from natvi.gaussian import dense", "gaussian"),
        ("derivatives/exact.py", "from natvi.natural import direction", "natural"),
        ("run/exact/loop.py", "import natvi", "__init__"),
        ("run/exact/loop.py", "from natvi import glmm", "__init__"),
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


@pytest.mark.parametrize(
    "source",
    [
        "from natvi.models.linear import door",
        "def f():\n    import natvi.models.linear.door",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..linear.door import glm",
    ],
)
def test_planted_sideways_imports_and_cycles_are_caught(tmp_path, source):
    plant(tmp_path, "models/linear/door.py", "from natvi.models.regression import priors")
    package = plant(tmp_path, "models/regression/priors.py", source)
    assert sideways_imports(package) == {("models/regression/priors.py", "linear")}
    assert import_cycles(package) == {frozenset({"natvi.models.linear.door", "natvi.models.regression.priors"})}


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("isinstance(F, ArrowFactor)", True),
        ("isinstance(F, linalg.ArrowFactor | tuple)", True),
        ("type(F) is ArrowFactor", True),
        ("match F:\n    case ArrowFactor(): pass", True),
        ("isinstance(F, Factor)", False),
        ("# the file names its class\nisinstance(F, ArrowFactor)", False),
        ("isinstance(F, Own)", False),
    ],
)
def test_a_planted_question_for_a_class_is_caught(tmp_path, source, caught):
    plant(tmp_path, "linalg/arrow.py", "class ArrowFactor(NamedTuple): ...\nclass Factor(Protocol): ...")
    package = plant(tmp_path, "run/loop.py", source)
    assert bool(class_checks(package / "run" / "loop.py", package)) == caught
    own = plant(tmp_path, "linalg/dense.py", source)
    assert class_checks(own / "linalg" / "dense.py", own) == []


def test_a_room_without_a_place_is_caught(tmp_path):
    assert upward_imports(plant(tmp_path, "utils.py", "")) == ["utils.py: room 'utils' has no place in ROOMS"]


def plant(folder: Path, file: str, source: str) -> Path:
    """Write one file of a package called natvi and return the package."""
    path = folder / "natvi" / file
    path.parent.mkdir(parents=True, exist_ok=True)
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
