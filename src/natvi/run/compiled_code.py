"""What compiled code costs: the time to make it, and room for it.

XLA's newer way to emit the code of fused operations takes longer to compile than the older one, which runs as fast
except in long loops over quadrature nodes. `quick_jit` asks for the older one, where the compiler still has it.

A process that fits many data sets of different sizes must not run out of room. Every new shape is a new program, and
every program takes some memory maps, of which Linux allows 65,530 to a process; where there are no more, the compiler
aborts the process, and with it all that the user has computed. A mixed model takes some 700. So now and then, at the
start of a fit, the maps are counted, and beyond half of the limit JAX is told to forget its programs: those that are
needed again are compiled again.
"""

from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

import jax

from natvi.run.kept_programs import LOADED, KeptProgram, forget_programs

QUICK = {"xla_cpu_use_fusion_emitters": False}
MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
SHARE = 0.5
BETWEEN = 64  # programs compiled between two counts, which take some milliseconds

_programs = {"compiled": 0, "counted": 0}


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
    if event in ("/jax/core/compile/backend_compile_duration", LOADED):
        _programs["compiled"] += 1


jax.monitoring.register_event_duration_secs_listener(_listen)


def quick_jit(function: Callable, **options: Any) -> Callable:
    """Compile a function as `jax.jit` does, in less time, for calls from outside compiled code only.

    Example:
        >>> quick_jit(lambda x: x + 1.0)(2.0)
        Array(3., dtype=float32, weak_type=True)
    """
    return _kept(function, KeptProgram(function, QUICK, lambda: _quick_options(), **options))


def thorough_jit(function: Callable, **options: Any) -> Callable:
    """Compile a function as `jax.jit` does, once for all processes, for calls from outside compiled code only.

    Example:
        >>> thorough_jit(lambda x: x + 1.0)(2.0)
        Array(3., dtype=float32, weak_type=True)
    """
    return _kept(function, KeptProgram(function, **options))


def _kept(function: Callable, program: KeptProgram) -> Callable:
    @wraps(function)
    def call(*args: Any) -> Any:
        return program(*args)

    return call


@cache
def _quick_options() -> dict[str, Any] | None:
    """Return the options, or None for a compiler that does not know them."""
    try:
        jax.jit(lambda x: x, compiler_options=QUICK).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return QUICK


def make_room() -> bool:
    """Forget compiled programs if there is little room for more; return whether it was necessary.

    Example:
        >>> make_room()
        False
    """
    if _programs["compiled"] - _programs["counted"] < BETWEEN:
        return False
    _programs["counted"] = _programs["compiled"]
    if not (MAPS.is_file() and LIMIT.is_file()):  # not Linux
        return False
    if MAPS.read_bytes().count(b"\n") < SHARE * int(LIMIT.read_text()):
        return False
    forget_programs()
    jax.clear_caches()
    return True
