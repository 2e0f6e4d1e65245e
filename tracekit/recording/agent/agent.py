"""Follows the steps of a program that knows nothing of it, and records a window of them."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from .calls import Calls
from .nvtx_recorder import NvtxRecorder
from .recorder import TorchRecorder
from .report import Report
from .window import Window

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIMIZER, CALL, MARKED = "optimizer", "call", "marked"
"""What ends a step: the first optimizer's step, a call of the first module, or the program's own mark."""


class Agent:
    """The state of one process of a recorded program.

    What fails in here is told in the report and never reaches the program.

    Args:
        torch: The program's torch.
        request: What `begin` of the package takes.

    Attributes:
        source: What ends a step; empty until that is known.
    """

    def __init__(self, torch: Any, request: dict[str, Any]) -> None:
        self._torch, self._request = torch, request
        self._outside = request.get("profiler") == "outside"
        self._thread = 0
        self.source = ""
        self._report = Report(torch, request["directory"])
        self._window = self._new(request["start_step"], request["steps"])
        self._fallback: Window | None = None
        self._calls = Calls(torch, begun=self.call_began, ended=self.call_ended)
        _at_exit(self.finish)

    def _new(self, start_step: int, steps: int, *, fallback: bool = False) -> Window:
        kind = NvtxRecorder if self._outside else TorchRecorder
        recorder = kind(self._torch, self._request)
        self._said = recorder.notes
        window = Window(start_step, steps, recorder)
        recorder.trace = lambda: self._report.place(fallback=fallback)
        recorder.written = lambda trace, whole: self._report.written(
            trace, recorder, source=self.source, whole=whole, asked=steps, first=start_step
        )
        recorder.give_way = lambda: self._guarded(window.end)
        return window

    def is_recording(self) -> bool:
        """Whether a profiler of ours runs."""
        return any(one is not None and one.state == "recording" for one in (self._window, self._fallback))

    def quit(self) -> None:
        """Neither follow nor record from now on."""
        self._calls.stop()
        self.source = "none"
        self._window.state = "done"

    def optimizer_made(self) -> None:
        """The program trains: its optimizer's steps count, and calls of a module do not."""
        if self.source in {"", CALL}:
            self._guarded(self._follow, OPTIMIZER)
            if self._request["start_step"] == 0:
                self._guarded(self._window.begin)

    def optimizer_stepped(self) -> None:
        """The first optimizer has stepped."""
        self._stepped(OPTIMIZER)

    def marked(self) -> None:
        """The program says that a step has ended: nothing else counts from now on."""
        if self.source not in {MARKED, "none"}:
            self._guarded(self._follow, MARKED)
        self._stepped(MARKED)

    def call_began(self) -> bool:
        """A module is called for the first time; the call is recorded in case that no window follows."""
        if self.source or _is_worker():
            return False
        self.source = CALL
        if self._request["start_step"] > 0:
            if self._outside:  # it records one window only
                return True
            self._fallback = self._new(0, 1, fallback=True)
            self._guarded(self._fallback.begin)
        else:
            self._guarded(self._window.begin)
        return True

    def call_ended(self) -> None:
        """A call of that module has ended."""
        if self._fallback and self._fallback.state == "recording":
            self._guarded(self._fallback.finished)
        self._stepped(CALL)

    def finish(self) -> None:
        """The program ends: write what there is."""
        self._calls.stop()
        for window in (self._fallback, self._window):
            if window:
                self._guarded(window.end)
        said = [message for _, message in self._said]
        self._guarded(lambda: self._report.close(source=self.source, passed=self._window.passed, said=said))

    def _follow(self, source: str) -> None:
        self._calls.stop()
        for window in (self._fallback, self._window):
            if window:
                window.abandon()
        self.source, self._fallback = source, None
        self._window = self._new(self._request["start_step"], self._request["steps"])

    def _stepped(self, source: str) -> None:
        here = threading.get_ident()
        if self.source == source and here == (self._thread or here):
            self._thread = here  # a profiler is stopped by the thread that started it
            self._guarded(self._window.finished)
            if self._window.state == "done":
                self._calls.stop()

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:  # the program comes first
            self._report.failed(error)
            self.quit()


def _is_worker() -> bool:
    """Whether this process was started by `multiprocessing`, which helpers are."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _at_exit(finish: Callable[[], None]) -> None:
    """Run at the end of this process, also of one forked by `multiprocessing`, which ends by `_exit`."""
    owner = os.getpid()

    def once() -> None:
        if os.getpid() == owner:
            finish()

    if _is_worker():
        from multiprocessing.util import Finalize

        Finalize(None, once, exitpriority=100)
    atexit.register(once)
