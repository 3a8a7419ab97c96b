"""Python's search for garbage, which stops while modules are imported."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Collect no garbage meanwhile: imports leave none, and to look for it takes a sixth of their time.

    Example:
        >>> with collector_at_rest():
        ...     gc.isenabled()
        False
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
