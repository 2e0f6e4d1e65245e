"""Count the steps of a program, record a window of them, and time those before and after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from .recorder import TorchRecorder
from .settings import optimizer_steps


class Window:
    """A window of the program's steps.

    Args:
        start_step: Steps to run before the window.
        steps: Steps to record; None records until `close`.
        recorder: Recorder of the steps.
        while_busy: Makes a context for the time in which a profiler begins or ends.

    Attributes:
        steps_done: Steps that have ended.
        state: `waiting`, `recording`, `timing` or sampling of the steps after the window, or `done`.
    """

    def __init__(
        self,
        start_step: int,
        steps: int | None,
        recorder: TorchRecorder,
        *,
        while_busy: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.steps_done = 0
        self.state = "waiting"
        self._start, self._steps, self._recorder = start_step, steps, recorder
        self._while_busy = while_busy

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
                self._stop(steps)
            else:
                self._recorder.step()
        elif self.state == "timing" and not self._recorder.mark_later():
            self.state = "done"

    def _mark_or_start(self) -> None:
        # the first step under the profiler is slow on a GPU, so one before the window is discarded
        warm = self._recorder.needs_warmup and self.steps_done == self._start - 1
        self._recorder.mark()
        if warm or self.steps_done >= self._start:
            self.state = "recording"
            optimizer_steps.clear()  # and by the recorder, if this step only warms it up
            with self._while_busy():
                self._recorder.start(self._start, warm=warm)

    def close(self, *, keep_open: bool = False) -> None:
        """Write the recording at the end of the program if it has a complete step, or with `keep_open`."""
        steps, former = self.recorded_steps, self.state
        self.state = "done"
        if former != "recording":
            return
        if steps:
            self._stop(steps, open_step=self.steps_done)
        elif keep_open:
            self._stop(0)
        else:
            self._discard()

    def _stop(self, steps: int, *, open_step: int | None = None) -> None:
        with self._while_busy():
            self._recorder.stop(steps, open_step=open_step)

    def _discard(self) -> None:
        with self._while_busy():
            self._recorder.discard()

    def abandon(self) -> None:
        """Discard the recording, and end to sample."""
        if self.state in {"recording", "timing"}:
            self._discard()
        self.state = "done"
