"""Mark a window of steps for a profiler outside the process, and time the steps before and after it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .device import CUDA, summary
from .recorder import STEP_NAME, TorchRecorder


class NvtxRecorder(TorchRecorder):
    """Mark a window with NVTX for a profiler outside the process, such as Nsight Systems.

    Ops and steps have ranges between cudaProfilerStart and cudaProfilerStop.

    The profiler records only the first window that a process opens, so an abandoned window stays open for the
    next.
    """

    opened = False
    """Whether this process has called cudaProfilerStart."""

    def __init__(self, torch: Any, *, stacks: bool) -> None:
        super().__init__(torch, stacks=stacks)
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
        """See `TorchRecorder`."""
        self._path = self.trace_path()
        if self._path is None:
            return
        self.peaks, self.began_unix_ns = self._peaks(), time.time_ns()
        self._wait_for_device()
        if self._records_gpu(first) and not NvtxRecorder.opened:
            self._torch.cuda.profiler.start()  # initializes CUDA
        NvtxRecorder.opened = True
        self._ops = self._mark_ops()
        self._begin_step(first - warm)

    def step(self) -> None:
        """See `TorchRecorder`."""
        if self._number is not None:
            number = self._number + 1
            self._end_step()
            self._begin_step(number)

    def stop(self, steps: int, *, open_step: int | None) -> None:
        """See `TorchRecorder`; an open step ends here."""
        path = self._quit()
        if path is None:
            return
        self._wait_for_device()  # before the range ends: kernels of the last step are recorded
        if self.device == CUDA:
            self._torch.cuda.profiler.stop()
        self.on_written(path, steps)

    def discard(self) -> None:
        """See `TorchRecorder`."""
        self._quit()

    def give_way(self) -> None:
        """See `program_profilers.Recorder`; ops are not marked any more."""
        if self._ops is not None:
            self._note("no_nvtx_ops", "ops were not marked once the program started its own profiler")
            self._end_ops()

    def _quit(self) -> Path | None:
        self._end_step()
        self._end_ops()
        path, self._path = self._path, None
        return path

    def _end_ops(self) -> None:
        ops, self._ops = self._ops, None
        if ops is not None:
            ops.__exit__(None, None, None)

    def _mark_ops(self) -> Any:
        """Enable ranges of ops; None if this torch cannot, or the program runs its own profiler."""
        if self.device != CUDA:  # enabling them would initialize CUDA in a program that does not use it
            self._note("no_nvtx_ops", "ops were not marked for the profiler: the program used no GPU")
            return None
        ops = self._torch.autograd.profiler.emit_nvtx(record_shapes=True)
        try:
            ops.__enter__()
        except RuntimeError as error:
            self._note("no_nvtx_ops", f"ops were not marked for the profiler: {summary(error)}")
            return None
        return ops

    def _begin_step(self, number: int) -> None:
        self._number = number
        try:
            self._torch.cuda.nvtx.range_push(f"{STEP_NAME}{number}")
        except RuntimeError as error:  # a torch without NVTX
            self._note("no_nvtx_steps", f"steps were not marked for the profiler: {summary(error)}")

    def _end_step(self) -> None:
        if self._number is not None:
            self._number = None
            with suppress(RuntimeError):
                self._torch.cuda.nvtx.range_pop()
