"""A bar for samplers: draws out of a known total."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE = 1.0


class DrawProgress:
    """A bar that appears once sampling has taken a second; `shown=False` never prints."""

    def __init__(self, shown: bool, total: int) -> None:
        """Prepare the bar for `total` draws."""
        self._began = time.perf_counter()
        self._shown, self._total = shown, total
        self._bar: Progress | None = None

    def __enter__(self) -> "DrawProgress":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, phase: str) -> None:
        """Say how many draws are done, and what is going on."""
        if not self._shown or time.perf_counter() - self._began < PATIENCE:
            return
        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(phase, total=self._total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, description=phase)
