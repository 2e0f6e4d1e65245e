"""CUDA profiler calls of a program without CUDA: they are reported to the stand-in for nsys.

Standard library only: programs under the stand-in load it from its file.
"""

from __future__ import annotations

import os
import time
from typing import Any


def report(line: str) -> None:
    """Report `start` and `stop` of the capture range, or an event: `kernel NAME` or `range NAME`."""
    path = os.environ.get("NSYS_STAND_IN_EVENTS")
    if path:
        with open(path, "a") as stream:  # noqa: PTH123
            stream.write(line + "\n")


class Event:
    """A CUDA event that takes the time of the host."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self._ns = 0

    def record(self) -> None:
        self._ns = time.perf_counter_ns()

    def elapsed_time(self, other: Event) -> float:
        return (other._ns - self._ns) / 1e6


class Ranges:
    """Stands in for torch's module of NVTX functions."""

    def __init__(self) -> None:
        self._open: list[str] = []

    def rangePushA(self, name: str) -> None:  # noqa: N802
        self._open.append(name)

    def rangePop(self) -> None:  # noqa: N802
        report(f"range {self._open.pop()}")

    def markA(self, name: str) -> None:  # noqa: N802
        report(f"range {name}")


def use_in(torch: Any) -> None:
    """Have torch see an initialized CUDA whose profiler calls and NVTX ranges the stand-in hears of."""
    cuda = torch.cuda
    cuda.is_initialized = cuda.is_available = lambda: True
    cuda.device_count = lambda: 0
    cuda.is_current_stream_capturing = lambda: False
    cuda.synchronize = lambda *_: None
    cuda.Event = Event
    cuda.profiler.start, cuda.profiler.stop = (lambda: report("start")), (lambda: report("stop"))
    cuda.nvtx._nvtx = Ranges()
