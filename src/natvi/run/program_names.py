"""What a compiled program is called in every process: by all that its machine code depends on.

A program depends on the function that it was made of, on what that function has closed over, on the shapes and types of
its arguments and on all that is static in them; beyond that on the sources of this library, on versions, on the
processor and on settings. All of it is written out and hashed. Only what has the same name in another process can be
written out: functions and classes of this library and of those below it, numbers, text, arrays, and containers of
these. Whatever else a program depends on, a function of the user's above all, makes it nameless.
"""

import enum
import hashlib
import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import equinox as eqx
import jax
import jaxlib
import numpy as np

FAMILIAR = frozenset(
    ("natvi", "jax", "jaxlib", "numpy", "equinox", "builtins", "math", "operator", "functools", "typing", "types")
    + ("collections", "_operator", "ml_dtypes", "abc")
)
DEEPEST = 40  # what is nested deeper is not written out
MOST_BYTES = 1 << 20  # of an array that is a constant of a program; what is larger is somebody's data
OURS = Path(__file__).parents[1]


class NamelessError(Exception):
    """A program depends on something that cannot be told in another process."""


def program_name(function: Callable, tree: Any, settings: Any) -> str:
    """Return the name of a program: a hash of all that it depends on.

    Args:
        function: What is compiled.
        tree: The structure of the dynamic arguments.
        settings: Their shapes and types, the static arguments, and how it is compiled.

    Raises:
        NamelessError: If it depends on what has no name in other processes.
    """
    parts = (surroundings(), *describe(function), *describe_tree(tree), *describe(settings))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def describe_tree(tree: Any) -> Iterator[str]:
    """Write out the structure of a pytree, with what is static in it."""
    found = tree.node_data()
    if found is None or found[0] is type(None):
        yield "leaf" if tree.num_leaves else "nothing"
        return
    yield f"node {tree.num_nodes}"
    yield from describe(found)
    for child in tree.children():
        yield from describe_tree(child)


def describe(thing: Any, depth: int = 0) -> Iterator[str]:
    """Write out a value that a program depends on.

    Example:
        >>> list(describe((1, "a")))
        ['tuple 2', 'int 1', "str 'a'"]

    Raises:
        NamelessError: If it has no name in other processes.
    """
    if depth > DEEPEST:
        raise NamelessError(type(thing).__name__)
    kind = type(thing)
    if thing is None or thing is Ellipsis or kind in (bool, int, float, complex, str, bytes):
        yield f"{kind.__name__} {thing!r}"
    elif isinstance(thing, enum.Enum):
        yield f"{_home(kind)} {thing.name}"
    elif isinstance(thing, np.dtype | jax.core.ShapedArray):
        yield f"{kind.__name__} {thing} {getattr(thing, 'weak_type', '')}"
    elif isinstance(thing, np.ndarray | np.generic | jax.Array) and not isinstance(thing, jax.core.Tracer):
        if not isinstance(thing.dtype, np.dtype) or thing.dtype.hasobject or thing.nbytes > MOST_BYTES:
            raise NamelessError("an array that is no constant")
        array = np.asarray(thing)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        yield f"array {array.dtype} {array.shape} {getattr(thing, 'weak_type', '')} {digest}"
    elif isinstance(thing, type):
        yield f"class {_home(thing)}"
    elif isinstance(thing, ModuleType):
        yield f"module {_familiar(thing.__name__)}"
    else:
        for part in _parts(thing):
            if isinstance(part, _Head):
                yield part
            else:
                yield from describe(part, depth + 1)


class _Head(str):
    """A text that stands for itself."""

    __slots__ = ()


def _parts(thing: Any) -> Iterator[Any]:
    """Return what a container, a function or an object of this library consists of."""
    kind = type(thing)
    if isinstance(thing, tuple | list):
        yield _Head(f"{_home(kind) if kind not in (tuple, list) else kind.__name__} {len(thing)}")
        yield from thing
    elif isinstance(thing, dict):
        yield _Head(f"{_home(kind)} {len(thing)}")
        for key, value in thing.items():
            yield from (key, value)
    elif isinstance(thing, set | frozenset):
        yield _Head(f"set {len(thing)}")
        yield from (_Head(text) for text in sorted("\n".join(describe(item)) for item in thing))
    elif isinstance(thing, partial):
        yield from (_Head("partial"), thing.func, thing.args, thing.keywords)
    elif isinstance(thing, MethodType):
        yield from (_Head("method"), thing.__self__, thing.__func__)
    elif _has_name(thing):
        yield _Head(f"name {_home(thing)}")
    elif isinstance(thing, FunctionType):  # of our own, made by another function
        module = _familiar(thing.__module__)
        if module.split(".")[0] != "natvi":
            raise NamelessError(thing.__qualname__)
        yield _Head(f"function {module} {thing.__qualname__} {thing.__code__.co_firstlineno}")
        yield from (thing.__defaults__, thing.__kwdefaults__)
        yield tuple(cell.cell_contents for cell in thing.__closure__ or ())
    elif not jax.tree_util.all_leaves([thing]) and _familiar(kind.__module__):
        leaves, tree = jax.tree.flatten(thing)
        yield _Head("\n".join(describe_tree(tree)))
        yield from leaves
    elif callable(thing) and (inner := getattr(thing, "__wrapped__", None)) is not None and _familiar(kind.__module__):
        yield from (_Head(f"around {kind.__name__}"), inner)
    else:
        raise NamelessError(kind.__qualname__)


def _has_name(thing: Any) -> bool:
    """Whether a function or class is found by its name in its module."""
    name, module = getattr(thing, "__qualname__", None), sys.modules.get(getattr(thing, "__module__", None) or "")
    if isinstance(thing, BuiltinFunctionType) and module is None:
        module = sys.modules["builtins"]
    found: Any = module
    for word in (name or "<none>").split("."):
        found = getattr(found, word, None)
    return found is thing and found is not None


def _home(thing: Any) -> str:
    if not _has_name(thing):
        raise NamelessError(repr(thing))
    return f"{_familiar(thing.__module__ or 'builtins')} {thing.__qualname__}"


def _familiar(module: str) -> str:
    if module.split(".")[0] not in FAMILIAR:
        raise NamelessError(module)
    return module


def surroundings() -> str:
    """Return what programs depend on beyond themselves: versions, sources, the machine, settings of JAX."""
    settings = jax.config.values
    chosen = [
        f"{name}={value}"
        for name, value in sorted(settings.items())
        if not any(word in name for word in ("cache", "log", "traceback"))
    ]
    return "\n".join((machine(), str(jax.config.jax_enable_x64), *chosen))  # the precision of this thread


@cache
def machine() -> str:
    """Return what does not change while a process runs."""
    sources = sorted(
        (str(path.relative_to(OURS)), path.stat().st_size, path.stat().st_mtime_ns) for path in OURS.rglob("*.py")
    )
    if not sources:
        raise NamelessError("a library without files")
    versions = (jax.__version__, jaxlib.__version__, np.__version__, eqx.__version__, platform.python_version())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return "\n".join(
        (*versions, platform.machine(), processor(), str(cores), os.environ.get("XLA_FLAGS", ""), str(sources))
    )


@cache
def processor() -> str:
    """Return the features of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
