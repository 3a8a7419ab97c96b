"""A bar for samplers: draws out of a known total."""

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from natvi.run.progress import LateBar


class DrawProgress(LateBar):
    """A bar of draws; `shown=False` never prints."""

    def __init__(self, shown: bool, total: int) -> None:
        """Prepare the bar for `total` draws."""
        super().__init__(
            shown,
            lambda: (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()),
            total,
        )

    def update(self, done: int, phase: str) -> None:
        """Say how many draws are done, and what is going on."""
        self.show(phase, done)
