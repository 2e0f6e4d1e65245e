"""Record a window of steps, and time the steps before and after it.

Either with torch.profiler, or with NVTX marks for a profiler outside the process.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from .cpu_load import CpuLoad
from .device import CPU, CUDA, DeviceClock, HostClock, is_capturing, peaks, summary
from .host_watch import HostWatch, is_alone
from .program_profilers import follow
from .settings import optimizer_steps, read_settings
from .step_hooks import ranges_of_ops
from .torch_logs import TorchLogs

STEP_NAME = "ProfilerStep#"
LACKS_NVTX = "this torch lacks NVTX; `pip install nvtx` helps (0.2.10 with nsys up to 2023.4)"
LATER_STEPS = 50
"""Maximum steps to time after the window."""
OPEN_NAME = "tracekit: after the last step"
"""Name of the range between the last complete step and the end of the program."""


def profiler_options(*, stacks: bool, light: bool = False) -> dict[str, Any]:
    """Return the arguments of `torch.profiler.profile` that are stored in `run.json`."""
    return {"record_shapes": not light, "profile_memory": not light, "with_stack": stacks}


class TorchRecorder:
    """Records steps with torch.profiler.

    `window.Window` decides what each step is; all calls come from the thread that runs the steps.

    Args:
        torch: The program's torch.
        stacks: Record Python call stacks.
        samples: Sample Python call stacks, unless they are recorded.
        root: Process of which all processes of the program are descendants; by default this one.
        light: Record no shapes and no memory.

    Attributes:
        trace_path: Returns the path of the trace when recording starts; None leaves the process unrecorded.
        on_written: Called with the complete trace and its number of complete steps.
        on_conflict: Called to end the recording if the program starts its own profiler.
        notes: Diagnostics of the recording, as pairs of code and message.
        peaks: Peak memory until the recording began: source, device, metric, bytes.
        began_unix_ns: Begin of the recording, ns since the epoch.
        later_steps: Maximum steps to time after the window.
        left_out: Steps after the window that are not timed, as the end of the profiler may affect them.
    """

    has_run = False
    """Whether this process, or one that it was forked from, has started a profiler of torch."""

    def __init__(
        self, torch: Any, *, stacks: bool, samples: bool = True, root: int | None = None, light: bool = False
    ) -> None:
        self._torch, self._stacks, self._light = torch, stacks, light
        self._load = CpuLoad(root)
        self._logs = TorchLogs(torch)
        self._marks: list[Any] = []
        self._later: list[Any] = []
        self._settled_ns: int | None = None
        self._clock: HostClock | DeviceClock = HostClock()
        self._profiler: Any = None
        self._watch = HostWatch(torch, samples=samples and not stacks)
        self._path: Path | None = None
        self._first = 0
        self._program_profilers = follow(torch)
        self._program_profilers.add(self)
        self.trace_path: Callable[[], Path | None] = lambda: None
        self.on_written: Callable[[Path, int], None] = lambda _trace, _steps: None
        self.on_conflict: Callable[[], None] = self.discard
        self.notes: list[tuple[str, str]] = []
        self.peaks: list[tuple[str, int | None, str, float]] = []
        self.began_unix_ns = self._began_ns = 0
        self.left_out = 0
        self.later_steps = LATER_STEPS

    @property
    def needs_warmup(self) -> bool:
        """Whether to discard the first step under the profiler: on a GPU it is slow."""
        return bool(self._torch.cuda.is_initialized())

    @property
    def device(self) -> str:
        """Device that the program has used so far."""
        return CUDA if self._torch.cuda.is_initialized() else CPU

    @property
    def options(self) -> dict[str, Any]:
        """Options of the profiler."""
        return profiler_options(stacks=self._stacks, light=self._light)

    def is_captured(self) -> bool:
        """Return whether the current step is captured into a CUDA graph and not executed.

        Such a step does not count: nothing of it is marked or recorded. A note says so.
        """
        if not is_capturing(self._torch):
            return False
        self._note("captured_steps", "steps captured into a CUDA graph were not counted")
        self._marks.append(None)
        return True

    def mark(self) -> None:
        """Mark the begin of a step that is timed without a profiler, or the end of the last of them.

        On a GPU, CUDA events take the time without synchronizing.
        """
        self._mark(self._marks)

    def _mark(self, marks: list[Any]) -> None:
        if isinstance(self._clock, HostClock) and self._torch.cuda.is_initialized():
            self._marks.clear()  # times of the host clock
            self._later.clear()
            self._clock = DeviceClock(self._torch, CUDA)
        if marks:
            self._load.step_ended()
        else:
            self._load.begin()
        marks.append(self._clock.now())

    def mark_later(self) -> bool:
        """Mark the end of a step after the window; return whether to mark the end of the next one.

        Steps are left out for as long as it took to end the profiler and write the trace: meanwhile data
        loaders fetched batches in advance, other ranks waited, and the device was idle. Once
        enough are timed, some more are sampled.
        """
        if self._settled_ns is None or not self.later_steps:
            return False
        if len(self._later) > self.later_steps:
            return self._watch.step()
        if not self._later:
            self.left_out += 1
        if time.perf_counter_ns() >= self._settled_ns:
            self._watch.stop()  # steps that are timed are not sampled
            if is_capturing(self._torch):
                self._later.append(None)
            else:
                self._mark(self._later)
        if len(self._later) > self.later_steps:
            self._load.end()
            return self._watch.start_sampling()
        return True

    def later_timings(self) -> tuple[list[int], str]:
        """Return durations of the steps after the window, ns, and their clock; never waits for the device."""
        return self._clock.elapsed_ns(_pairs(self._later), wait=False)[0], self._clock.name

    def timings(self) -> tuple[list[int], str]:
        """Return durations of the steps before the window, ns, and their clock.

        A note says how many could not be read.
        """
        pairs = _pairs(self._marks)
        durations, reason = self._clock.elapsed_ns(pairs)
        if reason:
            unread = f"{len(pairs) - len(durations)} of {len(pairs)} steps before profiling"
            self._note("steps_not_timed", f"{unread} could not be timed: {reason}")
        return durations, self._clock.name

    def facts(self, source: str, steps: int = 0) -> dict[str, Any]:
        """Describe the recording of so many steps for `recording.collector.read_facts`, with their source."""
        step_ns, clock = self.timings()
        return {
            "source": source,
            "step_ns": step_ns,
            "clock": clock,
            "device": self.device,
            "threads": self._torch.get_num_threads(),
            "version": str(self._torch.__version__),
            "options": self.options,
            "peaks": self.peaks,
            "began_unix_ns": self.began_unix_ns,
            "program": read_settings(self._torch, steps),
            "host_samples": self._watch.sampler.facts(),
            "thread_times": self._watch.thread_times,
            "cpu_load": self._load.facts(),
        }

    def with_later_steps(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Return facts with times and samples of the steps after the window; never waits for the device."""
        self._load.end()
        self._watch.stop()
        later_ns, clock = self.later_timings()
        if later_ns and clock != facts["clock"]:  # the program first used its GPU after the window
            facts = facts | {"step_ns": [], "clock": clock}
        return facts | {
            "later_ns": later_ns,
            "left_out": self.left_out,
            "host_samples": self._watch.sampler.facts(),
            "cpu_load": self._load.facts(),
        }

    def _note(self, code: str, message: str) -> None:
        if (code, message) not in self.notes:
            self.notes.append((code, message))

    def start(self, first: int, *, warm: bool) -> None:
        """Start recording.

        Args:
            first: Number of the first step to keep, counted from 0.
            warm: Whether the step that begins now only warms up the profiler.
        """
        self._load.end()
        if self._program_profilers.are_active():
            self.notes.append(("other_profiler", "the program was already running its own profiler"))
            return
        self._path = self.trace_path()
        if self._path is None:
            return
        self.peaks, self.began_unix_ns = self._peaks(), time.time_ns()
        self._began_ns = time.perf_counter_ns()
        self._first = first
        if not warm:
            self._wait_for_device()
        self._profiler = self._profile(first)
        # torch would begin at step 0: its ranges are to have the numbers of the steps of the program
        self._profiler.step_num = first - warm
        self._profiler.current_action = self._profiler.schedule(first - warm)
        TorchRecorder.has_run = True
        with _quiet(), self._logs.quiet_start():
            self._profiler.start()
        self._watch.start()
        self._watch.read_thread_times()

    def _profile(self, first: int) -> Any:
        profiler = self._torch.profiler
        kinds, action = profiler.ProfilerActivity, profiler.ProfilerAction
        with _quiet():
            return profiler.profile(
                activities=[kinds.CPU, *([kinds.CUDA] if self._records_gpu(first) else [])],
                schedule=lambda step: action.WARMUP if step < first else action.RECORD,
                **self.options,
            )

    def _records_gpu(self, first: int) -> bool:
        """Return whether to record the GPU: it is used, or may be later in the program's first step."""
        return self.device == CUDA or (first == 0 and bool(self._torch.cuda.is_available()))

    def uses(self, profiler: object) -> bool:
        """See `program_profilers.Recorder`."""
        return self._profiler is not None and self._profiler.profiler is profiler

    def give_way(self) -> None:
        """See `program_profilers.Recorder`; what was recorded is kept, and later steps are not timed."""
        self._settled_ns = None
        self._watch.stop()
        if self._profiler is not None:
            note = "the program started its own profiler, which ended the recording"
            self.notes.append(("other_profiler", note))
            self.on_conflict()

    def step(self) -> None:
        """End a recorded step and begin another."""
        if self._profiler is not None:
            if self._profiler.step_num + 1 == self._first:  # recording begins
                self._wait_for_device()
                optimizer_steps.clear()
            with _quiet():
                self._profiler.step()
            self._watch.read_thread_times()

    def _wait_for_device(self) -> None:
        """Let the device finish the work of earlier steps, which must not be recorded in the first one."""
        if self._torch.cuda.is_initialized():
            DeviceClock(self._torch, CUDA).wait()

    def _peaks(self) -> list[tuple[str, int | None, str, float]]:
        """Return peak memory so far; a note says which devices cannot be read."""
        values, reason = peaks(self._torch)
        if reason:
            self._note("peaks_not_read", f"peak memory of a device could not be read: {reason}")
        return values

    def stop(self, steps: int, *, open_step: int | None) -> None:
        """Stop and write the recording.

        Args:
            steps: Steps that were recorded completely.
            open_step: Number of the step that has begun but not ended; None if there is none.
        """
        began_ns = time.perf_counter_ns()
        profiler, path = self._end()
        if profiler is None or path is None:
            return
        part = path.with_name(path.name + ".part")
        with _quiet():
            profiler.export_chrome_trace(str(part))
        if open_step is not None:
            _rename_step(part, open_step)
        part.rename(path)
        self.on_written(path, steps)
        ended_ns = time.perf_counter_ns()
        self._settled_ns = ended_ns + (ended_ns - began_ns)
        if open_step is None and self.later_steps and self.device == CPU and is_alone(self._torch):
            self._watch.start(profiled=False)  # in the steps that are left out

    def discard(self) -> None:
        """Stop without writing."""
        self._end()

    def _end(self) -> tuple[Any, Path | None]:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._watch.read_thread_times()
        self._watch.stop()
        if profiler is not None:
            _wait_for_gloo()
            try:
                with _quiet():
                    profiler.stop()
            finally:
                self._logs.restore()
            self._note_clock()
        return profiler, self._path

    def _note_clock(self) -> None:
        """Note that the clock was set meanwhile: torch scales all times of a trace by how far it went."""
        elapsed_ns = time.perf_counter_ns() - self._began_ns
        set_ns = time.time_ns() - self.began_unix_ns - elapsed_ns
        if abs(set_ns) > max(50_000_000, elapsed_ns // 20):
            text = "so all times of the profile are wrong, and those without the profiler are right"
            self._note("clock_set", f"the clock was set by {set_ns / 1e9:+.3f} s in the profile, {text}")


class NvtxRecorder(TorchRecorder):
    """Mark a window with NVTX for a profiler outside the process, such as Nsight Systems.

    Ops and steps have ranges between cudaProfilerStart and cudaProfilerStop.

    The profiler records only the first window that a process opens, so an abandoned window stays open for the
    next.
    """

    opened = False
    """Whether this process has called cudaProfilerStart."""

    def __init__(
        self, torch: Any, *, stacks: bool, samples: bool = True, root: int | None = None, light: bool = False
    ) -> None:
        super().__init__(torch, stacks=stacks, samples=samples, root=root, light=light)
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
        self._load.end()
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
        try:
            if self.device == CUDA:
                ops = self._torch.autograd.profiler.emit_nvtx(record_shapes=True)
            else:  # which would initialize CUDA in a program that does not use it
                ops = ranges_of_ops(self._torch)
            ops.__enter__()
        except ImportError:
            self._note("no_nvtx_ops", "ops were not marked for the profiler: the program used no GPU")
            return None
        except RuntimeError as error:
            self._note("no_nvtx_ops", f"ops were not marked for the profiler: {summary(error)}")
            return None
        return ops

    def _begin_step(self, number: int) -> None:
        self._number = number
        text = f"{STEP_NAME}{number}"
        try:
            self._torch.cuda.nvtx.range_push(text)
        except RuntimeError:  # a torch without NVTX
            try:
                import_module("nvtx").push_range(text)
            except ImportError:
                self._note("no_nvtx_steps", f"steps were not marked for the profiler: {LACKS_NVTX}")

    def _end_step(self) -> None:
        if self._number is not None:
            self._number = None
            try:
                self._torch.cuda.nvtx.range_pop()
            except RuntimeError:
                with suppress(ImportError):
                    import_module("nvtx").pop_range()


def _pairs(marks: list[Any]) -> list[tuple[Any, Any]]:
    """Return the begin and the end of each timed step."""
    return [(start, end) for start, end in pairwise(marks) if start is not None is not end]


def _wait_for_gloo(limit_s: float = 2.0) -> None:
    """Wait until no gloo thread is running, at most `limit_s`.

    A collective completes for its caller before the gloo thread has recorded its end. Writing that into a
    stopped profiler corrupts the heap (seen in torch 2.13).
    """
    deadline = time.monotonic() + limit_s
    while _gloo_is_running() and time.monotonic() < deadline:
        time.sleep(0.001)


def _gloo_is_running() -> bool:
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
    """Suppress torch's warnings about profiling, which the program may turn into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _rename_step(trace: Path, number: int) -> None:
    """Rename the range of an incomplete step, so that it does not count as a step."""
    old, new = f'"{STEP_NAME}{number}"'.encode(), f'"{OPEN_NAME}"'.encode()
    renamed = trace.with_name(trace.name + ".renamed")
    with trace.open("rb") as source, renamed.open("wb") as target:
        target.writelines(line.replace(old, new) for line in source)
    renamed.replace(trace)
