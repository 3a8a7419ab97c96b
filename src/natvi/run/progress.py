"""Progress on anything that takes over a second; silent in library mode.

Rich takes time to import, so that it comes with the first bar that appears.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

Bar = TypeVar("Bar", bound="LateBar")
PATIENCE = 1.0


class LateBar:
    """A bar on the standard error stream that appears once the work has taken a second."""

    def __init__(self, shown: bool, columns: Callable[[], tuple[Any, ...]], total: int | None = None) -> None:
        """Prepare the bar; `shown=False` never prints. Columns are made when it appears."""
        self._began = time.perf_counter()
        self._shown, self._columns, self._total = shown, columns, total
        self._bar: Any = None  # a rich.progress.Progress

    def __enter__(self: Bar) -> Bar:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def show(self, description: str, completed: int | None = None) -> None:
        """Say what is going on, and how much is done."""
        if not self._shown or time.perf_counter() - self._began < PATIENCE:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(*self._columns(), console=Console(stderr=True), transient=True)
            self._bar.add_task(description, total=self._total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=completed, description=description)


class StepProgress(LateBar):
    """A line with steps, bound and time; of minibatches also rows per second, of a watched fit its last value."""

    def __init__(self, shown: bool, label: str = "fitting", rows_per_step: int = 0) -> None:
        """Prepare the line; `shown=False` never prints."""
        super().__init__(shown, _step_columns)
        self._label, self._rows_per_step = label, rows_per_step
        self._last: tuple[int, float] | None = None

    def update(self, step: int, elbo: float, watched: float | None = None) -> None:
        """Say how far the fit is."""
        text = f"{self._label}: step {step}, ELBO {elbo:,.3f}"
        if watched is not None:
            text += f", validation {watched:,.4f}"
        now = time.perf_counter()
        if self._rows_per_step and self._last is not None:
            before, then = self._last
            text += f", {self._rows_per_step * (step - before) / max(now - then, 1e-9):,.0f} rows/s"
        self._last = step, now
        self.show(text)


def _step_columns() -> tuple[Any, ...]:
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    return SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
