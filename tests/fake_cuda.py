"""Fake CUDA device in place of `torch.cuda`'s functions: asynchronous, with rules that the real one enforces.

Work is queued and takes time on the device while the host goes on; both have a simulated clock, so a busy
machine does not matter. As with the real one, waiting while a
graph is captured is an error that ruins the capture, an event is readable only once the device has reached
it, an event of a capture has no time, and after a failed kernel every call fails.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

ADVICE = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with "
    "`TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
"""What torch appends to the message of each CUDA error."""
CAPTURING = "CUDA error: operation not permitted when stream is capturing"
ILLEGAL = "CUDA error: an illegal memory access was encountered"
CALL_NS = 5_000
GIB = 1 << 30
PROPERTIES = SimpleNamespace(
    name="Fake GPU", total_memory=80 * GIB, multi_processor_count=132, major=9, minor=0, uuid="0000"
)


@dataclass
class FakeCuda:
    """One process's view of its devices.

    Attributes:
        initialized: Whether the process has a CUDA context.
        devices: Number of devices.
        free_bytes: Free memory of the current device.
        unreadable: Devices whose memory statistics cannot be read.
        broken: Message of the failed kernel after which every call fails; empty if none failed.
        capturing: Whether the current stream is being captured.
        ruined: Calls that ended a capture.
        calls: Names of the calls so far.
        launched: Kernels that the device executes, not captured ones.
        now_ns: Time of the host; each call takes `CALL_NS`.
    """

    initialized: bool = True
    devices: int = 1
    free_bytes: int = 79 * GIB
    total_bytes: int = 80 * GIB
    unreadable: set[int] = field(default_factory=set)
    broken: str = ""
    capturing: bool = False
    ruined: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    launched: int = 0
    now_ns: int = 1_000_000_000
    _busy_until_ns: int = 0

    def clock(self) -> int:
        """Return the time of the host in ns, in place of `time.perf_counter_ns`."""
        self.now_ns += 100
        return self.now_ns

    def launch(self, duration_ns: int) -> None:
        """Queue a kernel; returns at once."""
        self.initialized = True
        self.now_ns += CALL_NS
        self._fail_if_broken()
        if not self.capturing:
            self.launched += 1
            self._busy_until_ns = self.reached_ns() + duration_ns

    def reached_ns(self) -> int:
        """Return when the device will have finished what is queued."""
        return max(self._busy_until_ns, self.now_ns)

    def pending_ns(self) -> int:
        """Return how long the device still works on what is queued."""
        return max(0, self._busy_until_ns - self.now_ns)

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Capture the work of the block into a graph; fails at the end if a call has ended the capture."""
        self.capturing, self.ruined = True, []
        yield
        self.capturing = False
        if self.ruined:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture" + ADVICE)

    def wait(self, call: str) -> None:
        """Wait as a synchronizing call does."""
        self.calls.append(call)
        self._fail_if_broken()
        if self.capturing:
            self.ruined.append(call)
            raise RuntimeError(CAPTURING + ADVICE)
        self.now_ns = self.reached_ns() + CALL_NS

    def synchronize(self) -> None:
        """Wait for the device, which initializes CUDA."""
        self.initialized = True
        self.wait("synchronize")

    def peak(self, device: int, size: int) -> int:
        """Return a statistic of a device's allocator."""
        self._fail_if_broken()
        if device in self.unreadable:
            raise RuntimeError("CUDA error: device(s) is/are busy or unavailable" + ADVICE)
        return size

    def profiler(self, name: str) -> None:
        """Start or stop the profiler, which initializes CUDA."""
        self.initialized = True
        self.calls.append(f"profiler.{name}")

    def _fail_if_broken(self) -> None:
        if self.broken:
            raise RuntimeError(self.broken + ADVICE)

    def queued_at_recordings(self, monkeypatch: pytest.MonkeyPatch, torch: Any) -> list[int]:
        """Return a list of the work on the device, ns, each time that torch's profiler begins to record."""
        found: list[int] = []
        start = torch.profiler.profile.start_trace

        def start_trace(profiler: Any) -> None:
            found.append(self.pending_ns())
            start(profiler)

        monkeypatch.setattr(torch.profiler.profile, "start_trace", start_trace)
        return found

    def install(self, monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
        """Replace the functions of `torch.cuda`."""
        cuda = torch.cuda
        replaced: dict[str, Any] = {
            "is_available": lambda: self.devices > 0,
            "is_initialized": lambda: self.initialized,
            "is_current_stream_capturing": lambda: self.capturing,
            "device_count": lambda: self.devices,
            "synchronize": lambda *_: self.synchronize(),
            "max_memory_allocated": lambda device=0: self.peak(device, 3 * GIB if device == 0 else 0),
            "max_memory_reserved": lambda device=0: self.peak(device, 4 * GIB),
            "reset_peak_memory_stats": lambda device=0: self.calls.append(
                f"reset_peak_memory_stats {device}"
            ),
            "mem_get_info": lambda *_: (self.free_bytes, self.total_bytes),
            "get_device_properties": lambda *_: PROPERTIES,
            "Event": lambda **options: Event(self, **options),
        }
        for name, value in replaced.items():
            monkeypatch.setattr(cuda, name, value)
        for name in ("start", "stop"):
            monkeypatch.setattr(cuda.profiler, name, lambda name=name: self.profiler(name))
        monkeypatch.setattr(cuda.nvtx, "range_push", lambda text: self.calls.append(f"push {text}"))
        monkeypatch.setattr(cuda.nvtx, "range_pop", lambda: self.calls.append("pop"))


class Event:
    """Event of the current stream.

    Args:
        cuda: The device.
        enable_timing: Whether it has a time.
    """

    def __init__(self, cuda: FakeCuda, *, enable_timing: bool = False) -> None:
        self._cuda, self._timed = cuda, enable_timing
        self._at_ns: int | None = None

    def record(self) -> None:
        """Take the place after all work that is queued; in a capture, become a part of the graph."""
        self._cuda.calls.append("record")
        self._cuda.now_ns += CALL_NS
        self._cuda._fail_if_broken()
        self._at_ns = None if self._cuda.capturing else self._cuda.reached_ns()

    def query(self) -> bool:
        """Return whether the device has reached the event."""
        self._cuda._fail_if_broken()
        return self._at_ns is None or self._at_ns <= self._cuda.now_ns

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds to another event."""
        self._cuda._fail_if_broken()
        if self._cuda.capturing:
            self._cuda.ruined.append("elapsed_time")
            raise RuntimeError(CAPTURING + ADVICE)
        if not (self._timed and end._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at_ns is None or end._at_ns is None:
            raise RuntimeError("CUDA error: invalid resource handle" + ADVICE)
        if end._at_ns > self._cuda.now_ns:
            raise RuntimeError("CUDA error: device not ready" + ADVICE)
        return (end._at_ns - self._at_ns) / 1e6
