"""Progress on anything that takes over a second; silent in library mode."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Report = Callable[[int, float], None]
PATIENCE = 1.0


class StepProgress:
    """A line with steps, bound and time that appears once a fit has taken a second."""

    def __init__(self, shown: bool, label: str = "fitting") -> None:
        """Prepare the line; `shown=False` never prints."""
        self._began = time.perf_counter()
        self._shown = shown
        self._label = label
        self._bar: Progress | None = None

    def __enter__(self) -> "StepProgress":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the line away."""
        if self._bar is not None:
            self._bar.stop()

    def update(self, step: int, elbo: float) -> None:
        """Say how far the fit is."""
        if not self._shown or time.perf_counter() - self._began < PATIENCE:
            return
        if self._bar is None:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(self._label)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], description=f"{self._label}: step {step}, ELBO {elbo:,.3f}")
