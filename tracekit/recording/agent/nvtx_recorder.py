"""Marks a window of steps for a profiler that watches the process from outside, as Nsight Systems does."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .recorder import STEP_NAME, TorchRecorder, peaks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class NvtxRecorder(TorchRecorder):
    """Implements `window.Recorder` by NVTX ranges of ops and steps inside cudaProfilerStart and Stop.

    The profiler outside records the first window that is opened and no other, so one that is given up stays
    open for the next.
    """

    opened = False
    """Whether this process has opened the window outside."""

    def __init__(self, torch: Any, options: Mapping[str, Any]) -> None:
        super().__init__(torch, options)
        self._ops: Any = None
        self._number: int | None = None

    @property
    def needs_warmup(self) -> bool:
        """A profiler outside is warm since the program began."""
        return False

    @property
    def options(self) -> dict[str, Any]:
        """Options of the ranges."""
        return {"record_shapes": self._ops is not None}

    def start(self, first: int, *, warm: bool) -> None:
        """See `window.Recorder`."""
        self._path = self.trace()
        if self._path is None:
            return
        self.peaks, self.began_unix_ns = peaks(self._torch), time.time_ns()
        if self.device == "cuda" and not NvtxRecorder.opened:
            self._torch.cuda.synchronize()
            self._torch.cuda.profiler.start()
        NvtxRecorder.opened = True
        self._ops = self._mark_ops()
        self._begin(first - warm)

    def step(self) -> None:
        """See `window.Recorder`."""
        if self._number is not None:
            following = self._number + 1
            self._finish()
            self._begin(following)

    def stop(self, whole: int, *, open_step: int | None) -> None:
        """See `window.Recorder`; the range of a step without an end closes here."""
        path = self._quit()
        if path is None:
            return
        if self.device == "cuda":
            self._torch.cuda.synchronize()  # the work of the last step belongs to it
            self._torch.cuda.profiler.stop()
        self.written(path, whole)

    def discard(self) -> None:
        """See `window.Recorder`."""
        self._quit()

    def _quit(self) -> Path | None:
        self._finish()
        ops, self._ops = self._ops, None
        if ops is not None:
            ops.__exit__(None, None, None)
        path, self._path = self._path, None
        return path

    def _mark_ops(self) -> Any:
        """A range for each op; None where this torch cannot, or the program profiles itself."""
        ops = self._torch.autograd.profiler.emit_nvtx(record_shapes=True)
        try:
            ops.__enter__()
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            self.notes.append(("no_nvtx_ops", f"ops were not marked for the profiler: {reason}"))
            return None
        return ops

    def _begin(self, number: int) -> None:
        self._number = number
        try:
            self._torch.cuda.nvtx.range_push(f"{STEP_NAME}{number}")
        except RuntimeError as error:  # a torch without NVTX
            note = ("no_nvtx_steps", f"steps were not marked for the profiler: {str(error).splitlines()[0]}")
            if note not in self.notes:
                self.notes.append(note)

    def _finish(self) -> None:
        if self._number is not None:
            self._number = None
            with suppress(RuntimeError):
                self._torch.cuda.nvtx.range_pop()
