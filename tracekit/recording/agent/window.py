"""Count the steps of a program, record a window of them, and time those before and after it."""

from __future__ import annotations

from typing import Protocol


class Recorder(Protocol):
    """Times and records steps; all calls come from the thread that runs the steps."""

    @property
    def needs_warmup(self) -> bool:
        """Whether to discard the first step under the profiler."""
        ...

    def is_captured(self) -> bool:
        """Return whether the current step is captured into a CUDA graph and not executed.

        Such a step does not count, and nothing of it is marked or recorded.
        """
        ...

    def mark(self) -> None:
        """Mark the begin of a step that is timed without a profiler, or the end of the last of them."""
        ...

    def mark_later(self) -> bool:
        """Mark the end of a step after the window; return whether to mark the end of the next one."""
        ...

    def start(self, first: int, *, warm: bool) -> None:
        """Start recording.

        Args:
            first: Number of the first step to keep, counted from 0.
            warm: Whether the step that begins now only warms up the profiler.
        """
        ...

    def step(self) -> None:
        """End a recorded step and begin another."""
        ...

    def stop(self, steps: int, *, open_step: int | None) -> None:
        """Stop and write the recording.

        Args:
            steps: Steps that were recorded completely.
            open_step: Number of the step that has begun but not ended; None if there is none.
        """
        ...

    def discard(self) -> None:
        """Stop without writing."""
        ...


class Window:
    """A window of the program's steps.

    Args:
        start_step: Steps to run before the window.
        steps: Steps to record; None records until `close`.
        recorder: Recorder of the steps.

    Attributes:
        steps_done: Steps that have ended.
        state: `waiting`, `recording`, `timing` of the steps after the window, or `done`.
    """

    def __init__(self, start_step: int, steps: int | None, recorder: Recorder) -> None:
        self.steps_done = 0
        self.state = "waiting"
        self._start, self._steps, self._recorder = start_step, steps, recorder

    @property
    def recorded_steps(self) -> int:
        """Steps that were recorded completely."""
        return max(0, self.steps_done - self._start) if self.state == "recording" else 0

    def begin(self) -> None:
        """Mark the begin of the first step, which is not timed without this call."""
        if self.state == "waiting" and self.steps_done == 0 and not self._recorder.is_captured():
            self._mark_or_start()

    def end_step(self) -> None:
        """End a step and begin the next."""
        if self.state in {"waiting", "recording"} and self._recorder.is_captured():
            return
        self.steps_done += 1
        if self.state == "waiting":
            self._mark_or_start()
        elif self.state == "recording":
            if self._steps is not None and self.steps_done >= self._start + self._steps:
                steps, self.state = self.recorded_steps, "timing"
                self._recorder.stop(steps, open_step=None)
            else:
                self._recorder.step()
        elif self.state == "timing" and not self._recorder.mark_later():
            self.state = "done"

    def _mark_or_start(self) -> None:
        warm = self._recorder.needs_warmup and self.steps_done == self._start - 1
        self._recorder.mark()
        if warm or self.steps_done >= self._start:
            self.state = "recording"
            self._recorder.start(self._start, warm=warm)

    def close(self, *, keep_open: bool = False) -> None:
        """Write the recording at the end of the program, if it has a complete step.

        Args:
            keep_open: Write it even without a complete step.
        """
        steps, former = self.recorded_steps, self.state
        self.state = "done"
        if former != "recording":
            return
        if steps:
            self._recorder.stop(steps, open_step=self.steps_done)
        elif keep_open:
            self._recorder.stop(0, open_step=None)
        else:
            self._recorder.discard()

    def abandon(self) -> None:
        """Discard the recording."""
        if self.state == "recording":
            self._recorder.discard()
        self.state = "done"
