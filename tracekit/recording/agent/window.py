"""Which steps are timed, which are recorded: counts the ends of steps and drives a recorder."""

from __future__ import annotations

from typing import Protocol


class Recorder(Protocol):
    """Times and records steps; all calls come from the thread that steps."""

    @property
    def needs_warmup(self) -> bool:
        """Whether the first step under the profiler is not worth keeping."""
        ...

    def mark(self) -> None:
        """A step that is timed without a profiler begins, or the last one of them ends."""
        ...

    def start(self, first: int, *, warm: bool) -> None:
        """Begin to record; the first step to keep has this number.

        Args:
            first: Number of the first step to keep, counted from 0.
            warm: Whether the step that begins now only warms up the profiler.
        """
        ...

    def step(self) -> None:
        """A recorded step ends and another begins."""
        ...

    def stop(self, whole: int, *, open_step: int | None) -> None:
        """Write what was recorded.

        Args:
            whole: Steps that were recorded from their begin to their end.
            open_step: Number of the step that had begun and has no end; None when there is none.
        """
        ...

    def discard(self) -> None:
        """Stop without writing."""
        ...


class Window:
    """A window of the program's steps.

    Args:
        start_step: Steps to let pass before it.
        steps: Steps to record; None records until `end`.
        recorder: What records.

    Attributes:
        passed: Steps that have ended.
        state: `waiting`, `recording` or `done`.
    """

    def __init__(self, start_step: int, steps: int | None, recorder: Recorder) -> None:
        self.passed = 0
        self.state = "waiting"
        self._start, self._steps, self._recorder = start_step, steps, recorder

    @property
    def whole(self) -> int:
        """Steps that were recorded from begin to end."""
        return max(0, self.passed - self._start) if self.state != "waiting" else 0

    def begin(self) -> None:
        """The first step begins now; without this call its begin is not known, nor its duration."""
        if self.state == "waiting" and self.passed == 0:
            self._waiting()

    def finished(self) -> None:
        """A step has ended, and the next begins."""
        self.passed += 1
        if self.state == "waiting":
            self._waiting()
        elif self.state == "recording":
            if self._steps is not None and self.passed >= self._start + self._steps:
                self.state = "done"
                self._recorder.stop(self.whole, open_step=None)
            else:
                self._recorder.step()

    def _waiting(self) -> None:
        warm = self._recorder.needs_warmup and self.passed == self._start - 1
        self._recorder.mark()
        if warm or self.passed >= self._start:
            self.state = "recording"
            self._recorder.start(self._start, warm=warm)

    def end(self, *, keep_open: bool = False) -> None:
        """The program ends; what was recorded is written if it holds a whole step.

        Args:
            keep_open: Write it also without a whole step.
        """
        if self.state != "recording":
            return
        whole = self.whole
        self.state = "done"
        if whole or keep_open:
            self._recorder.stop(whole, open_step=self.passed if whole or not keep_open else None)
        else:
            self._recorder.discard()

    def abandon(self) -> None:
        """Drop what was recorded."""
        if self.state == "recording":
            self._recorder.discard()
        self.state = "done"
