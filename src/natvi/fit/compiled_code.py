"""Room for compiled code: a process that fits many data sets of different sizes must not run out of it.

Every new shape is a new program, and every program takes some memory maps, of which Linux allows 65,530 to a process;
where there are no more, the compiler aborts the process, and with it all that the user has computed. A mixed model
takes some 700. So now and then, at the start of a fit, the maps are counted, and beyond half of the limit JAX is told
to forget its programs: those that are needed again are compiled again.
"""

from pathlib import Path

import jax

MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
SHARE = 0.5
BETWEEN = 64  # programs compiled between two counts, which take some milliseconds

_programs = {"compiled": 0, "counted": 0}


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _programs["compiled"] += 1


jax.monitoring.register_event_duration_secs_listener(_listen)


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
    jax.clear_caches()
    return True
