"""What goes on around a climb: progress, Ctrl-C and checkpoints."""

from pathlib import Path
from types import TracebackType
from typing import Any

from natvi.models.density.climbing.climb import ClimbState
from natvi.run.interrupt import Interruption
from natvi.run.progress import StepProgress
from natvi.run.storage.checkpoint import Checkpoint, require_same_shapes, save_at_the_end


class Watch:
    """Called between steps; says whether to end now."""

    def __init__(self, progress: bool, checkpoint: str | Path | None, seconds: float, mark: Any) -> None:
        """Prepare; `mark` tells one fit from another."""
        function, *numbers = mark
        name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        self._keeper = None if checkpoint is None else Checkpoint(checkpoint, numbers, seconds, name)
        self._line, self._interruption = StepProgress(progress), Interruption()

    def __enter__(self) -> "Watch":
        """Take over Ctrl-C."""
        self._interruption.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hand Ctrl-C back."""
        self._interruption.__exit__(kind, error, trace)
        self._line.__exit__(kind, error, trace)

    @property
    def asked(self) -> bool:
        """Whether the user asked to stop."""
        return self._interruption.asked

    def begin(self, state: Any, first: Any) -> ClimbState | None:
        """Return the state to go on from, given or kept in the checkpoint; None to start afresh from the first."""
        blank = ClimbState.at(first)
        if state is None and self._keeper is not None:
            state = self._keeper.resume(blank)
            if state is None:
                self._keeper.save_now(blank)  # a path that cannot be written is noticed before the work
                return None
            if len(state.trace) == 0:  # kept before the first step
                return None
        if state is None:
            return None
        if not isinstance(state, ClimbState):
            raise ValueError("state must be result.state of an earlier fit of the same log-density.")
        require_same_shapes(state._replace(trace=blank.trace), blank)
        return state

    def __call__(self, state: ClimbState) -> bool:
        """Look at the state between two steps."""
        self._line.update(len(state.trace), float(state.trace[-1]))
        if self._keeper is not None:
            self._keeper.save(state)
        return self.asked

    def end(self, state: ClimbState) -> None:
        """Keep the last state."""
        if self._keeper is not None:
            save_at_the_end(self._keeper, state)
