"""Device of this process: waiting for it, its clock, and CUDA graphs that are being captured.

Works for any accelerator whose module has the interface of `torch.cuda`, out-of-tree ones included. Imports
nothing of tracekit, as the other modules of the agent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

CUDA, CPU = "cuda", "cpu"


def is_capturing(torch: Any) -> bool:
    """Return whether the calls on the current stream are being captured into a CUDA graph.

    They are not executed then, and waiting for the device or reading an event would end the capture.
    """
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


class HostClock:
    """Clock of the host, with the interface of `DeviceClock`."""

    name = "perf_counter"

    def now(self) -> int:
        """Return the time, ns."""
        return time.perf_counter_ns()

    def wait(self) -> None:
        """Do nothing: what a call does is done when it returns."""

    def elapsed_ns(self, pairs: Iterable[tuple[int, int]], *, wait: bool = True) -> tuple[list[int], str]:
        """Return the time from the first to the second of each pair, ns, and no reason for omitted pairs."""
        return [end - start for start, end in pairs], ""


class DeviceClock:
    """Clock of an accelerator: events on its current stream, which do not make the host wait.

    Args:
        torch: The program's torch.
        device: Type of the accelerator, as in `torch.accelerator.current_accelerator().type`.
    """

    def __init__(self, torch: Any, device: str = CUDA) -> None:
        self._torch, self._device = torch, device
        self.name = f"{device}_event"
        self._module = getattr(torch, device)

    def now(self) -> Any:
        """Return an event that the current stream reaches after all earlier work."""
        if hasattr(self._module, "Event"):
            event = self._module.Event(enable_timing=True)
        else:
            event = self._torch.Event(device=self._device, enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Wait until the device has finished all work of this process.

        Raises:
            RuntimeError: The work failed, or a CUDA graph is being captured.
        """
        if hasattr(self._module, "synchronize"):
            self._module.synchronize()
        else:
            self._torch.accelerator.synchronize()

    def elapsed_ns(self, pairs: Iterable[tuple[Any, Any]], *, wait: bool = True) -> tuple[list[int], str]:
        """Return the time from the first to the second event of each pair, ns, exact to about 500 ns.

        Waits for the device; with `wait` off, pairs that it has not reached are omitted. So are pairs that
        cannot be read.

        Returns:
            The durations, and why the first omitted pair could not be read; empty if all were.
        """
        if wait:
            try:
                self.wait()
            except RuntimeError as error:
                return [], summary(error)
        durations, reason = [], ""
        for start, end in pairs:
            try:
                if not (wait or end.query()):
                    continue
                durations.append(round(start.elapsed_time(end) * 1e6))
            except (RuntimeError, ValueError) as error:  # such as events of two devices
                reason = reason or summary(error)
        return durations, reason


def summary(error: BaseException) -> str:
    """Return the first line of the message of an error, or its type if it has none."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
