"""Device of this process: waiting for it, its clock, peaks of memory, and CUDA graphs that are captured.

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


def peaks(torch: Any) -> tuple[list[tuple[str, int | None, str, float]], str]:
    """Return peak memory so far: source, device, metric and bytes.

    Returns:
        The peaks, and why the first omitted device could not be read; empty if all were.
    """
    values: list[tuple[str, int | None, str, float]] = []
    resident, reason = resident_peak(), ""
    if resident is not None:
        values.append(("process", None, "host_peak_bytes", float(resident)))
    for index in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        try:
            allocated = torch.cuda.max_memory_allocated(index)
            reserved = torch.cuda.max_memory_reserved(index)
        except RuntimeError as error:
            reason = reason or summary(error)
            continue
        if allocated:
            values.append(("torch", index, "device_peak_allocated_bytes", float(allocated)))
            values.append(("torch", index, "device_peak_reserved_bytes", float(reserved)))
    return values, reason


def resident_peak() -> int | None:
    """Return peak resident bytes of this process; None if the system does not tell them.

    `getrusage` would include the parent that started this process.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123
            line = next(line for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024
