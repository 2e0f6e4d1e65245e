"""Sample counters while a program runs, in one thread of the collector.

Each sampler is read when sampling begins, then every `interval_s`, and at the end. Samples have system time
(ns since the epoch), as traces of Kineto and nsys do. A failed reading is reported once as a diagnostic and
does not affect the program. The thread is not in the measured process, where it would compete for the GIL.

Example:
    >>> with sample_counters(interval_s=0.05) as buffer:
    ...     total = sum(range(1_000))
    >>> {sample.metric for sample in buffer.samples()} >= {"rss_bytes", "threads"}
    True
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

import psutil

from tracekit.ingest.write import Sample
from tracekit.recording.collector import Progress
from tracekit.runs.meta import Diagnostic, Level

from .nvml import NvmlSampler
from .protocol import MEASURE, PROFILE

INTERVAL_S = 0.1
"""About the update interval of NVML; sampling costs the program well below 1%."""
MAX_READINGS = 2_000
"""Readings after which every second one is dropped and the interval doubled, to limit memory."""


class Sampler(Protocol):
    """Source of samples; made, read and closed in one thread."""

    name: str

    def read(self) -> list[Sample]:
        """Return current samples.

        Raises:
            Exception: Reading failed; the sampler is not read again.
        """
        ...

    def close(self) -> None:
        """Release resources, if there are any."""

    def diagnostics(self) -> list[Diagnostic]:
        """Report values that could not be read, and why."""
        return []


MakeSampler: TypeAlias = Callable[[int], Sampler | None]

RSS, CPU, THREADS, PROCESSES = "rss_bytes", "cpu_percent", "threads", "processes"
_MIN_SEARCH_NS, _MAX_SEARCH_NS = 500_000_000, 8_000_000_000
_TICK_S, _PAGE_BYTES = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_MIN_SHARE_NS = 30_000_000  # shortest interval for a CPU share: the kernel counts CPU time in ticks of 10 ms
_EXITING = 0x4  # the kernel's PF_EXITING flag


class ProcessSampler(Sampler):
    """Samples memory, CPU time and threads of a process and its children.

    * `rss_bytes`: sum of resident bytes; shared pages count once per process.
    * `cpu_percent`: CPU time over wall time since the last reading, in percent of one core.
    * `threads`, `processes`: counts without the sampling thread.

    Finding children reads every process of the machine, so its interval doubles up to 8 s while they do not
    change. A child counts from the reading that finds it.
    """

    name = "process"

    def __init__(self, process: psutil.Process) -> None:
        self._root = process
        self._children: list[psutil.Process] = []
        self._search_at_ns, self._interval_ns = 0, _MIN_SEARCH_NS
        self._cpu_s: dict[int, float] | None = None
        self._read_ns = 0

    @classmethod
    def of(cls, pid: int) -> ProcessSampler | None:
        """Return the sampler of a process; None if there is no such process."""
        try:
            return cls(psutil.Process(pid))
        except psutil.Error:
            return None

    def read(self) -> list[Sample]:
        """Return resident bytes, CPU share since the last reading if there is one, threads and processes."""
        self._search()
        rss, threads, cpu_s = 0, 0, {}
        for process in (self._root, *self._children):
            try:
                cpu_s[process.pid], process_rss, process_threads = _usage(process)
            except psutil.Error:  # it ended
                continue
            rss += process_rss
            threads += process_threads - (process.pid == os.getpid())
        now, clock_ns = time.time_ns(), time.perf_counter_ns()
        if not cpu_s:
            return []
        values: list[tuple[str, str, float]] = [
            (RSS, "bytes", rss),
            (THREADS, "count", threads),
            (PROCESSES, "count", len(cpu_s)),
        ]
        share = self._share(cpu_s, clock_ns)
        if share is not None:
            values.append((CPU, "%", share))
        return [Sample(now, self.name, None, metric, unit, float(value)) for metric, unit, value in values]

    def _search(self) -> None:
        now = time.perf_counter_ns()
        if now < self._search_at_ns:
            return
        try:
            children = self._root.children(recursive=True)
        except psutil.Error:
            children = []
        unchanged = children == self._children
        self._interval_ns = min(2 * self._interval_ns, _MAX_SEARCH_NS) if unchanged else _MIN_SEARCH_NS
        self._children, self._search_at_ns = children, now + self._interval_ns

    def _share(self, cpu_s: dict[int, float], now_ns: int) -> float | None:
        """Return the CPU share in percent since the last reading, of processes that were in it."""
        last, since_ns = self._cpu_s, self._read_ns
        if last is not None and now_ns - since_ns < _MIN_SHARE_NS:
            return None
        self._cpu_s, self._read_ns = cpu_s, now_ns
        if last is None:
            return None
        used_s = sum(seconds - last[pid] for pid, seconds in cpu_s.items() if pid in last)
        return 100 * max(0.0, used_s) * 1e9 / (now_ns - since_ns)


def _usage(process: psutil.Process) -> tuple[float, int, int]:
    """Return CPU seconds, resident bytes and threads."""
    # One file of Linux has all three; psutil, which other systems need, takes four times as long.
    try:
        text = Path(f"/proc/{process.pid}/stat").read_bytes()
    except OSError:
        with process.oneshot():
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss, process.num_threads()
    fields = text[text.rindex(b")") + 2 :].split()  # after the name, which may have any character
    if int(fields[6]) & _EXITING:  # its memory is freed, even if it is not reaped yet
        raise psutil.NoSuchProcess(process.pid)
    return (int(fields[11]) + int(fields[12])) * _TICK_S, int(fields[21]) * _PAGE_BYTES, int(fields[17])


SAMPLERS: Sequence[MakeSampler] = (ProcessSampler.of, NvmlSampler.of)
"""Factories of samplers by process id; they return None if not available on this machine."""


class SampleBuffer:
    """Samples and diagnostics; complete once the block of `sample_counters` has ended."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, int | None, str], list[Sample]] = {}
        self._diagnostics: list[Diagnostic] = []

    def samples(self) -> tuple[Sample, ...]:
        """Return the samples so far in order of time."""
        samples = (sample for series in list(self._series.values()) for sample in series)
        return tuple(sorted(samples, key=lambda sample: sample.t_unix_ns))

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return the distinct diagnostics so far."""
        return tuple(dict.fromkeys(self._diagnostics))

    def add(self, samples: Sequence[Sample]) -> None:
        """Add samples."""
        for sample in samples:
            self._series.setdefault((sample.source, sample.device, sample.metric), []).append(sample)

    def thin(self) -> None:
        """Drop every second sample of each metric, but not the first."""
        for series in self._series.values():
            series[:] = series[::2]

    def add_diagnostics(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Add diagnostics."""
        self._diagnostics += diagnostics

    def add_failure(self, name: str, error: Exception) -> None:
        """Report that a sampler is not read any more."""
        summary = f"{type(error).__name__}: {error}".splitlines()[0]
        message = f"sampling of {name} ended early: {summary}"
        self._diagnostics.append(Diagnostic(Level.WARN, f"sampling_{name}", message))


@contextmanager
def sample_counters(
    *,
    interval_s: float = INTERVAL_S,
    pid: Callable[[], int | None] = os.getpid,
    samplers: Sequence[MakeSampler] = SAMPLERS,
    condition: Callable[[], bool] = lambda: True,
) -> Iterator[SampleBuffer]:
    """Sample while the block runs.

    Args:
        interval_s: Seconds from one reading to the next; a reading that takes longer delays the next.
        pid: Returns the process to sample with its children; None as long as there is none.
        samplers: Factories of the samplers.
        condition: Whether to read, asked before each reading.

    Yields:
        Samples; complete when the block has ended.
    """
    loop = _SamplingLoop(interval_s, pid, samplers, condition)
    thread = threading.Thread(target=loop.run, name="tracekit-sampling", daemon=True)
    thread.start()
    loop.began.wait()
    try:
        yield loop.buffer
    finally:
        loop.stop.set()
        thread.join()


@dataclass
class _SamplingLoop:
    interval_s: float
    pid: Callable[[], int | None]
    makers: Sequence[MakeSampler]
    condition: Callable[[], bool]
    buffer: SampleBuffer = field(default_factory=SampleBuffer)
    samplers: list[Sampler] | None = None
    readings: int = 0
    began: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            self._read()
            self.began.set()
            due = time.monotonic()
            while not self.stop.wait(max(0.0, due + self.interval_s - time.monotonic())):
                # after a late reading the next ones are not made up for
                due = max(due + self.interval_s, time.monotonic() - self.interval_s / 2)
                self._read()
            self._read()
        finally:
            self.began.set()
            for sampler in list(self.samplers or ()):
                self._end(sampler)

    def _read(self) -> None:
        sys.setprofile(None)  # remove the hook of a profiler of Python stacks
        if not self.condition():
            return
        if self.samplers is None:
            if (pid := self.pid()) is None:
                return
            self.samplers = []
            for make in self.makers:
                self._start(make, pid)
        for sampler in list(self.samplers):
            try:
                self.buffer.add(sampler.read())
            except Exception as error:  # must not reach the measured program
                self.buffer.add_failure(sampler.name, error)
                self._end(sampler)
        self.readings += 1
        if self.readings >= MAX_READINGS:
            self.buffer.thin()
            self.readings //= 2
            self.interval_s *= 2

    def _start(self, make: MakeSampler, pid: int) -> None:
        try:
            sampler = make(pid)
        except Exception as error:  # as above
            self.buffer.add_failure(getattr(make, "__qualname__", "sampler"), error)
            return
        if sampler is not None:
            self.samplers = [*(self.samplers or ()), sampler]

    def _end(self, sampler: Sampler) -> None:
        self.samplers = [other for other in self.samplers or () if other is not sampler]
        try:
            sampler.close()
            self.buffer.add_diagnostics(sampler.diagnostics())
        except Exception as error:  # as above
            self.buffer.add_failure(sampler.name, error)


class SampledProgress:
    """Progress callback that also limits sampling to the steps: from the first to one reading after the last.

    Attributes:
        buffer: Samples; complete once the block of `sample_counters` has ended.
    """

    def __init__(self, progress: Progress, *, last: str = PROFILE) -> None:
        self.buffer = SampleBuffer()
        self._progress, self._last = progress, last
        self._began = self._ended = self._read_after_end = False

    def __call__(self, part: str, done: int, total: int) -> None:
        """Pass on the progress."""
        self._began = self._began or part in {MEASURE, PROFILE}
        self._ended = self._ended or (part == self._last and done == total)
        self._progress(part, done, total)

    @contextmanager
    def sampling(self, guard: int) -> Iterator[None]:
        """Sample the program of a guard, given by its process id, inside the block."""
        with sample_counters(pid=lambda: program_of(guard), condition=self.is_due) as self.buffer:
            yield

    def is_due(self) -> bool:
        """Return whether to read now: while steps run, and once after them."""
        if not self._ended:
            return self._began
        first, self._read_after_end = not self._read_after_end, True
        return first


def is_recording(directory: Path) -> bool:
    """Return whether a process of a program has claimed a rank and has not written its trace yet."""
    names = {path.name for path in directory.iterdir()}
    claimed = {name.removesuffix(".claim") for name in names if name.endswith(".claim")}
    return any(f"{name}.facts" not in names for name in claimed)


def program_of(guard: int) -> int | None:
    """Return the process id of the program of a guard; None if one of them has ended."""
    try:
        return next((process.pid for process in psutil.Process(guard).children()), None)
    except psutil.Error:
        return None
