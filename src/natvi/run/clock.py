"""How long JAX spent tracing and compiling, so that a fit can say what the user waited for."""

import time

import jax

from natvi.run.compiled_code import make_room
from natvi.run.kept_programs import LOADED
from natvi.run.lapack import find_lapack
from natvi.run.program_cache import keep_programs

_COMPILE_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
    LOADED,
)
_compiled = {"seconds": 0.0}


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
    if event in _COMPILE_EVENTS:
        _compiled["seconds"] += duration_secs


jax.monitoring.register_event_duration_secs_listener(_listen)


class Stopwatch:
    """Splits the time since its creation into compilation and the rest."""

    def __init__(self) -> None:
        """Start the watch, with room for what will be compiled and a place to keep it."""
        keep_programs()
        find_lapack()
        make_room()
        self._began = time.perf_counter()
        self._compiled = _compiled["seconds"]

    def total(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._began

    def read(self) -> dict[str, float]:
        """Return seconds by `compile`, `run` and `total`."""
        total = self.total()
        compiled = min(_compiled["seconds"] - self._compiled, total)
        return {"compile": compiled, "run": total - compiled, "total": total}
