"""Mark a window of steps with NVTX for a profiler outside the process, such as Nsight Systems."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .recorder import STEP_NAME, TorchRecorder, peaks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class NvtxRecorder(TorchRecorder):
    """Recorder with NVTX ranges of ops and steps between cudaProfilerStart and cudaProfilerStop.

    The profiler records only the first window that a process opens, so an abandoned window stays open for the
    next.
    """

    opened = False
    """Whether this process has called cudaProfilerStart."""

    def __init__(self, torch: Any, options: Mapping[str, Any]) -> None:
        super().__init__(torch, options)
        self._ops: Any = None
        self._number: int | None = None

    @property
    def needs_warmup(self) -> bool:
        """False: the profiler has been running since the program began."""
        return False

    @property
    def options(self) -> dict[str, Any]:
        """Options of the NVTX ranges."""
        return {"record_shapes": self._ops is not None}

    def start(self, first: int, *, warm: bool) -> None:
        """See `window.Recorder`."""
        self._path = self.trace_path()
        if self._path is None:
            return
        self.peaks, self.began_unix_ns = peaks(self._torch), time.time_ns()
        if self.device == "cuda" and not NvtxRecorder.opened:
            self._torch.cuda.synchronize()
            self._torch.cuda.profiler.start()
        NvtxRecorder.opened = True
        self._ops = self._mark_ops()
        self._begin_step(first - warm)

    def step(self) -> None:
        """See `window.Recorder`."""
        if self._number is not None:
            number = self._number + 1
            self._end_step()
            self._begin_step(number)

    def stop(self, steps: int, *, open_step: int | None) -> None:
        """See `window.Recorder`; an open step ends here."""
        path = self._quit()
        if path is None:
            return
        if self.device == "cuda":
            self._torch.cuda.synchronize()  # wait for the kernels of the last step
            self._torch.cuda.profiler.stop()
        self.on_written(path, steps)

    def discard(self) -> None:
        """See `window.Recorder`."""
        self._quit()

    def _quit(self) -> Path | None:
        self._end_step()
        ops, self._ops = self._ops, None
        if ops is not None:
            ops.__exit__(None, None, None)
        path, self._path = self._path, None
        return path

    def _mark_ops(self) -> Any:
        """Enable ranges of ops; None if this torch cannot, or the program runs its own profiler."""
        ops = self._torch.autograd.profiler.emit_nvtx(record_shapes=True)
        try:
            ops.__enter__()
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            self.notes.append(("no_nvtx_ops", f"ops were not marked for the profiler: {reason}"))
            return None
        return ops

    def _begin_step(self, number: int) -> None:
        self._number = number
        try:
            self._torch.cuda.nvtx.range_push(f"{STEP_NAME}{number}")
        except RuntimeError as error:  # a torch without NVTX
            note = ("no_nvtx_steps", f"steps were not marked for the profiler: {str(error).splitlines()[0]}")
            if note not in self.notes:
                self.notes.append(note)

    def _end_step(self) -> None:
        if self._number is not None:
            self._number = None
            with suppress(RuntimeError):
                self._torch.cuda.nvtx.range_pop()
