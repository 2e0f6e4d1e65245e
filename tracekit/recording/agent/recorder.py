"""Records a window of steps with torch.profiler, and times the steps before it."""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

STEP_NAME = "ProfilerStep#"
OPEN_NAME = "tracekit: behind the last step"
"""Name of what was recorded between the last whole step and the end of the program."""


def profiler_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `torch.profiler.profile` that `run.json` contains.

    Args:
        options: Options of `tracekit collect` by name.
    """
    return {"record_shapes": True, "profile_memory": True, "with_stack": options["stacks"]}


class TorchRecorder:
    """Implements `window.Recorder`.

    Args:
        torch: The program's torch.
        options: Options of `tracekit collect` by name.

    Attributes:
        trace: Where the trace goes; asked when recording begins, None keeps the process unrecorded.
        written: Called once the trace is whole, with it and the number of whole steps.
        give_way: Ends the recording when the program starts a profiler of its own.
        notes: What a reader of the recording must know, as pairs of code and message.
        peaks: Peak memory until the recording began: source, device, metric, bytes.
        began_unix_ns: When the recording began, ns since the epoch.
    """

    def __init__(self, torch: Any, options: Mapping[str, Any]) -> None:
        self._torch, self._options = torch, options
        self._marks: list[Any] = []
        self._on_device = False
        self._profiler: Any = None
        self._path: Path | None = None
        self._restore: Callable[[], None] = lambda: None
        self.trace: Callable[[], Path | None] = lambda: None
        self.written: Callable[[Path, int], None] = lambda _trace, _whole: None
        self.give_way: Callable[[], None] = self.discard
        self.notes: list[tuple[str, str]] = []
        self.peaks: list[tuple[str, int | None, str, float]] = []
        self.began_unix_ns = 0

    @property
    def needs_warmup(self) -> bool:
        """On a device the profiler's first step is slow, so it is not one of those kept."""
        return bool(self._torch.cuda.is_initialized())

    @property
    def device(self) -> str:
        """The device the program has used so far."""
        return "cuda" if self._torch.cuda.is_initialized() else "cpu"

    @property
    def options(self) -> dict[str, Any]:
        """Options of the profiler."""
        return profiler_options(self._options)

    def mark(self) -> None:
        """See `window.Recorder`: on a device its own clock tells, without making it wait for the host."""
        if self._torch.cuda.is_initialized():
            if not self._on_device:
                self._marks.clear()  # what was marked by another clock
            self._on_device = True
            event = self._torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())

    def timings(self) -> tuple[list[int], str]:
        """Durations of the steps before the window, ns, and the clock that told them."""
        marks = self._marks
        pairs = [(marks[number], marks[number + 1]) for number in range(len(marks) - 1)]
        if self._on_device:
            self._torch.cuda.synchronize()
            return [round(start.elapsed_time(end) * 1e6) for start, end in pairs], "cuda_event"
        return [end - start for start, end in pairs], "perf_counter"

    def start(self, first: int, *, warm: bool) -> None:
        """See `window.Recorder`."""
        if self._torch.autograd.profiler._is_profiler_enabled:
            self.notes.append(("other_profiler", "the program itself ran a profiler, which was left to it"))
            return
        self._path = self.trace()
        if self._path is None:
            return
        self.peaks, self.began_unix_ns = peaks(self._torch), time.time_ns()
        self._profiler = self._profile(first)
        self._profiler.step_num = first - warm
        self._profiler.current_action = self._profiler.schedule(first - warm)
        with _quiet():
            self._profiler.start()
        self._watch_for_others()

    def _profile(self, first: int) -> Any:
        profiler = self._torch.profiler
        kinds, action = profiler.ProfilerActivity, profiler.ProfilerAction
        cuda = self._torch.cuda
        # what is recorded from its first step on may not have used its device yet
        on_device = cuda.is_initialized() or (first == 0 and cuda.is_available())
        with _quiet():
            return profiler.profile(
                activities=[kinds.CPU, *([kinds.CUDA] if on_device else [])],
                schedule=lambda step: action.WARMUP if step < first else action.RECORD,
                **self.options,
            )

    def _watch_for_others(self) -> None:
        """End our recording when the program starts a profiler of its own, which would fail beside it."""
        kind = self._torch.autograd.profiler.profile
        original, ours = kind._prepare_trace, self._profiler

        def prepare(other: Any) -> Any:
            if self._profiler is ours and other is not ours.profiler:
                note = "the program started a profiler of its own, which ended the recording"
                self.notes.append(("other_profiler", note))
                self.give_way()
            return original(other)

        kind._prepare_trace = prepare
        self._restore = lambda: setattr(kind, "_prepare_trace", original)

    def step(self) -> None:
        """See `window.Recorder`."""
        if self._profiler is not None:
            with _quiet():
                self._profiler.step()

    def stop(self, whole: int, *, open_step: int | None) -> None:
        """See `window.Recorder`."""
        profiler, path = self._end()
        if profiler is None or path is None:
            return
        part = path.with_name(path.name + ".part")
        with _quiet():
            profiler.export_chrome_trace(str(part))
        if open_step is not None:
            _rename_step(part, open_step)
        part.rename(path)
        self.written(path, whole)

    def discard(self) -> None:
        """See `window.Recorder`."""
        self._end()

    def _end(self) -> tuple[Any, Path | None]:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._restore()
            _wait_for_gloo()
            with _quiet():
                profiler.stop()
        return profiler, self._path


def peaks(torch: Any) -> list[tuple[str, int | None, str, float]]:
    """Peak memory so far: source, device, metric and bytes."""
    found: list[tuple[str, int | None, str, float]] = []
    resident = _resident_peak()
    if resident is not None:
        found.append(("process", None, "host_peak_bytes", float(resident)))
    if torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            allocated = torch.cuda.max_memory_allocated(index)
            if allocated:
                reserved = torch.cuda.max_memory_reserved(index)
                found.append(("torch", index, "device_peak_allocated_bytes", float(allocated)))
                found.append(("torch", index, "device_peak_reserved_bytes", float(reserved)))
    return found


def _resident_peak() -> int | None:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123
            line = next(line for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024


def _wait_for_gloo(limit_s: float = 2.0) -> None:
    """Wait until no thread of gloo is running, at most `limit_s`.

    A collective is complete for its caller before gloo's thread has recorded its end. That thread would write
    into the events of a profiler that has been stopped, which corrupts the heap (seen in torch 2.13).
    """
    deadline = time.monotonic() + limit_s
    while _gloo_runs() and time.monotonic() < deadline:
        time.sleep(0.001)


def _gloo_runs() -> bool:
    for stat in Path("/proc/self/task").glob("*/stat"):
        try:
            name, _, state = stat.read_text(encoding="ascii", errors="replace").rpartition(") ")
        except OSError:  # the thread has ended
            continue
        if "(pt_gloo" in name and state.startswith("R"):
            return True
    return False


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings of torch about how it is profiled are not the program's, which may turn them into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _rename_step(trace: Path, number: int) -> None:
    """Give a step that has no end another name, so that nobody takes it for one."""
    old, new = f'"{STEP_NAME}{number}"'.encode(), f'"{OPEN_NAME}"'.encode()
    renamed = trace.with_name(trace.name + ".renamed")
    with trace.open("rb") as source, renamed.open("wb") as target:
        target.writelines(line.replace(old, new) for line in source)
    renamed.replace(trace)
