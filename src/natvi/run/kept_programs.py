"""Compiled programs from earlier processes, without tracing: what JAX's own folder of programs does not spare.

JAX finds a compiled program by what a function has become, for which the function must be traced and lowered; that is
most of what a warm process does. A program of ours is found by its name (`program_names`) instead, and loaded. Where
anything is in the way, the function is compiled as usual: no folder, several devices or another kind, an argument that
is being traced, a program that has no name or cannot be written down, a file that cannot be read.
"""

import hashlib
import io
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import jax
from jax.experimental import serialize_executable

from natvi.run.lapack import find_lapack
from natvi.run.program_cache import keep_programs
from natvi.run.program_names import NamelessError, describe, program_name

LOADED = "/natvi/programs/load_duration"
DIGEST = 32  # bytes of a checksum in front of every file
HIT = "/jax/compilation_cache/cache_hits"
_hits = {"count": 0}
_all: "WeakSet[KeptProgram]" = WeakSet()


def _listen(event: str, **_: str | int) -> None:
    _hits["count"] += event == HIT


jax.monitoring.register_event_listener(_listen)


class Signature(NamedTuple):
    """What tells the programs of one function apart."""

    doubles: bool
    static: tuple
    tree: Any
    shapes: tuple


class KeptProgram:
    """A function that is compiled once for all processes; for calls from outside compiled code only."""

    def __init__(
        self, function: Callable, wish: Any = None, compiler: Callable[[], Any] = lambda: None, **options: Any
    ) -> None:
        """Take a function, and what `jax.jit` is to be told.

        `wish` are options for the compiler, and `compiler` returns those of them that it knows.
        """
        self._function, self._options, self._wish, self._compiler = function, options, wish, compiler
        static = options.get("static_argnums", ())
        self._static = (static,) if isinstance(static, int) else tuple(static)
        self._found: dict[Signature, Callable | None] = {}
        self._latest: tuple[bool, tuple, Callable] | None = None
        self._nameless = False
        _all.add(self)

    @cached_property
    def usual(self) -> Any:
        """The function as JAX compiles it."""
        return jax.jit(self._function, compiler_options=self._compiler(), **self._options)

    def forget(self) -> None:
        """Let go of what was compiled or loaded."""
        self._found.clear()
        self._latest = None

    def __call__(self, *args: Any) -> Any:
        """Run the program for these arguments, loaded or compiled."""
        if self._nameless or (folder := keep_programs()) is None or jax.config.jax_disable_jit:
            return self.usual(*args)
        static = tuple(args[k] for k in self._static)
        dynamic = tuple(arg for k, arg in enumerate(args) if k not in self._static) if static else args
        latest = self._latest  # other threads may change it
        if latest is not None and latest[:2] == (jax.config.jax_enable_x64, static):
            with suppress(TypeError):  # arguments of other shapes, which it finds out sooner than can be done here
                return latest[2](*dynamic)
        leaves, tree = jax.tree.flatten(dynamic)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self.usual(*args)
        signature = Signature(jax.config.jax_enable_x64, static, tree, tuple(jax.typeof(leaf) for leaf in leaves))
        if signature not in self._found:
            self._found[signature] = self._find(folder, signature, args)
        program = self._found[signature]
        if program is None:
            return self.usual(*args)
        self._latest = (signature.doubles, static, program)
        return program(*dynamic)

    def _find(self, folder: Path, signature: Signature, args: tuple) -> Callable | None:
        """Return the program from the folder, or compiled and put there; None if it is one that is not kept."""
        if jax.device_count() > 1 or jax.default_backend() != "cpu":
            return None
        try:
            list(describe(self._function))
        except (NamelessError, ValueError):  # ValueError: a cell that is still empty
            self._nameless = True
            return None
        try:
            settings = (signature.shapes, signature.static, self._options, self._wish)
            name = program_name(self._function, signature.tree, settings)
        except (NamelessError, ValueError, TypeError, OSError):  # OSError: sources that are gone
            return None
        path = folder / f"{name}-program"
        began = time.perf_counter()
        with suppress(Exception):  # whatever is wrong with a file, there is another way
            program = _load(path, signature.tree)
            jax.monitoring.record_event_duration_secs(LOADED, time.perf_counter() - began)
            return program
        return self._make(path, name, args)

    def _make(self, path: Path, name: str, args: tuple) -> Callable | None:
        def renamed(*inner: Any) -> Any:
            return self._function(*inner)

        # under a name of its own JAX does not find it in its folder: what it loads from there cannot be written again
        renamed.__name__ = renamed.__qualname__ = f"{getattr(self._function, '__name__', 'program')}_{name[:12]}"
        lowered = jax.jit(renamed, compiler_options=self._compiler(), **self._options).lower(*args)
        try:
            _written(lowered.out_tree)
        except Exception:  # pickle has no error of its own for what it cannot write
            return None
        before = _hits["count"]
        with _not_written_by_jax():
            program = lowered.compile()
        if _hits["count"] == before:
            with suppress(Exception):  # a full disk, a program with constants: it runs all the same
                _write(path, program)
        return program


def forget_programs() -> None:
    """Let go of all programs that were loaded or compiled here."""
    for program in _all:
        program.forget()


def _load(path: Path, tree: Any) -> Callable:
    content = path.read_bytes()
    if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
        path.unlink(missing_ok=True)
        raise ValueError("a file that is not whole")
    if b"lapack_" in content:
        find_lapack()  # lowering would have
    program, out_tree = pickle.loads(content[DIGEST:])  # written by us, checked: as trusted as machine code must be
    in_tree = jax.tree_util.treedef_tuple((tree, jax.tree.structure({})))
    return serialize_executable.deserialize_and_load(program, in_tree, out_tree)


def _write(path: Path, program: jax.stages.Compiled) -> None:
    content, _, out_tree = serialize_executable.serialize(program)
    text = _written((content, out_tree))
    if pickle.loads(text)[1] != out_tree:
        return
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix="-part", delete=False) as file:
        try:
            file.write(hashlib.sha256(text).digest() + text)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


class _Pickler(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        """Write equinox's mark of an absent field by its name: it is asked whether it is that very object."""
        return "MISSING" if type(thing).__qualname__ == "_Missing" else NotImplemented


def _written(thing: Any) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file).dump(thing)
        return file.getvalue()


def _not_written_by_jax() -> AbstractContextManager:
    """Keep JAX from writing a program into its folder as well, where this version lets us."""
    try:
        from jax._src.config import persistent_cache_min_compile_time_secs
    except ImportError:
        return nullcontext()
    return persistent_cache_min_compile_time_secs(float("inf"))
