"""Who decides between two chunks of a loop: how far the next one goes, whether Ctrl-C was pressed, whether to save.

Chunks take about half a second, so that a user can look on and stop. How many steps that is, the clock of process 0
says; what the steps compute does not depend on it. A loop takes all of its limits from here, as numbers.
"""

import time
from typing import Any, NamedTuple

import numpy as np

from natvi.hosts.collect import checked
from natvi.run.hosts import Hosts, gather
from natvi.run.interrupt import Interruption
from natvi.run.storage.checkpoint import Checkpoint, save_at_the_end

MOST = 2**31 - 1  # steps of a chunk


class Pace:
    """How many steps take about as long as a chunk should."""

    def __init__(self, chunk_seconds: float, steps: float = 1, least: int = 1, growth: float = np.inf) -> None:
        """Start with a guess; no chunk has fewer than `least` steps, or more than `growth` times those before it."""
        self._seconds, self._least, self._growth = chunk_seconds, least, growth
        self.steps = self._within(steps)

    def note(self, steps: int, seconds: float) -> None:
        """Learn from a chunk.

        Example:
            >>> pace = Pace(0.5, growth=10)
            >>> pace.note(1, 1e-3)
            >>> pace.steps
            10
        """
        self.steps = self._within(min(self._seconds * max(steps, 1) / max(seconds, 1e-9), self._growth * self.steps))

    def _within(self, steps: float) -> int:
        return int(max(self._least, min(steps, MOST)))


class Turn(NamedTuple):
    """What process 0 says after a chunk, the same numbers in every process."""

    interrupted: bool
    save: bool
    steps: int  # of the next chunk


class Lead:
    """Takes the decisions of a loop on process 0, and tells them to the others.

    Args:
        pace: Of the chunks.
        interruption: Ctrl-C.
        keeper: The checkpoint, if there is one.
        hosts: The processes.
    """

    def __init__(self, pace: Pace, interruption: Interruption, keeper: Checkpoint | None, hosts: Hosts) -> None:
        """Agree on the first chunk."""
        self._pace, self._interruption, self._keeper, self._hosts = pace, interruption, keeper, hosts
        self._began = time.perf_counter()
        self.turn = self._agree(Turn(False, False, pace.steps))

    def begin(self) -> None:
        """Start the watch of a chunk."""
        self._began = time.perf_counter()

    def look(self, steps: int) -> Turn:
        """Decide after a chunk of so many steps."""
        self.turn = self._agree(self.propose(steps))
        return self.turn

    def propose(self, steps: int) -> Turn:
        """Return what this process would decide; what process 0 proposes goes to `take`, with other numbers at best."""
        self._pace.note(steps, time.perf_counter() - self._began)
        due = self._keeper is not None and self._keeper.is_due()
        return Turn(bool(self._interruption.asked), due, self._pace.steps)

    def take(self, said: Any) -> Turn:
        """Follow what process 0 says."""
        interrupted, save, steps = said
        self.turn = Turn(bool(interrupted), bool(save), int(steps))
        return self.turn

    def save(self, state: object) -> None:
        """Write the state, once; every process brings its part."""
        whole = gather(state)
        if self._keeper is not None and self._hosts.is_first:
            self._keeper.save_or_warn(whole)

    def save_first(self, state: object) -> None:
        """Write a state before any work: a path that cannot be written is noticed at once."""
        whole = gather(state)

        def write() -> None:
            if self._keeper is not None and self._hosts.is_first and not self._keeper.path.exists():
                self._keeper.save_now(whole)

        checked(write)

    def save_last(self, state: object) -> None:
        """Write the last state; if that fails the finished fit is not lost."""
        whole = gather(state)
        if self._keeper is not None and self._hosts.is_first:
            save_at_the_end(self._keeper, whole)

    def _agree(self, turn: Turn) -> Turn:
        return self.take(self._hosts.share(np.asarray(turn, np.int32)))
