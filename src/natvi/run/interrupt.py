"""Ctrl-C that returns what was reached instead of throwing it away."""

import signal
import threading
from types import FrameType, TracebackType


class Interruption:
    """While active, the first Ctrl-C sets `asked` and lets the running chunk finish; a second one raises.

    Signal handlers exist in the main thread only; elsewhere this does nothing.
    """

    def __init__(self) -> None:
        """Start without a request."""
        self.asked = False
        self._previous: object = None
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "Interruption":
        """Take over Ctrl-C."""
        if self._active:
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hand Ctrl-C back."""
        if self._active:
            signal.signal(signal.SIGINT, self._previous)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
