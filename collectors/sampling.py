"""Sample counters while a program runs, in one thread of the collector.

Each sampler is read when sampling begins, then every `interval_s`, and at the end. Samples have system time
(ns since the epoch), as traces of Kineto and nsys do. A failed reading is reported once as a diagnostic and
does not affect the program. The thread is not in the measured process, where it would compete for the GIL.

Example:
    >>> with sampling(interval_s=0.05) as buffer:
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
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import psutil

from tracekit.ingest.write import Sample
from tracekit.runs.meta import Diagnostic, Level

from .nvml import NvmlSampler
from .process import ProcessSampler
from .protocol import MEASURE, PROFILE

if TYPE_CHECKING:
    from tracekit.recording.collector import Progress


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
        """Release resources."""
        ...

    def diagnostics(self) -> list[Diagnostic]:
        """Report values that could not be read, and why."""
        ...


if TYPE_CHECKING:
    MakeSampler = Callable[[int], Sampler | None]

SAMPLERS: Sequence[MakeSampler] = (ProcessSampler.of, NvmlSampler.of)
"""Factories of samplers by process id; they return None if not available on this machine."""


class SampleBuffer:
    """Samples and diagnostics; complete once the block of `sampling` has ended."""

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
        for one in samples:
            self._series.setdefault((one.source, one.device, one.metric), []).append(one)

    def thin(self) -> None:
        """Drop every second sample of each metric, but not the first."""
        for series in self._series.values():
            series[:] = series[::2]

    def add_diagnostics(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Add diagnostics."""
        self._diagnostics += diagnostics


@contextmanager
def sampling(
    *,
    interval_s: float = INTERVAL_S,
    pid: int | None = None,
    samplers: Sequence[MakeSampler] = SAMPLERS,
) -> Iterator[SampleBuffer]:
    """Sample while the block runs.

    Args:
        interval_s: Seconds from one reading to the next; a reading that takes longer delays the next.
        pid: Process to sample with its children; this one by default.
        samplers: Factories of the samplers.

    Yields:
        Samples; complete when the block has ended.
    """
    buffer, stop = SampleBuffer(), threading.Event()
    work = _SamplingLoop(buffer, stop, interval_s, os.getpid() if pid is None else pid, samplers)
    thread = threading.Thread(target=work.run, name="tracekit-sampling", daemon=True)
    thread.start()
    work.began.wait()
    try:
        yield buffer
    finally:
        stop.set()
        thread.join()


class _SamplingLoop:
    def __init__(
        self,
        buffer: SampleBuffer,
        stop: threading.Event,
        interval_s: float,
        pid: int,
        samplers: Sequence[MakeSampler],
    ) -> None:
        self.began = threading.Event()
        self._buffer, self._stop, self._interval_s, self._pid = buffer, stop, interval_s, pid
        self._make = samplers
        self._live: list[Sampler] = []
        self._readings = 0

    def run(self) -> None:
        try:
            for make in self._make:
                self._start(make)
            self._read()
            self.began.set()
            due = time.monotonic()
            while not self._stop.wait(max(0.0, due + self._interval_s - time.monotonic())):
                due = max(due + self._interval_s, time.monotonic() - self._interval_s / 2)
                self._read()
            self._read()
        finally:
            self.began.set()
            for sampler in list(self._live):
                self._end(sampler)

    def _start(self, make: MakeSampler) -> None:
        try:
            sampler = make(self._pid)
        except Exception as error:  # must not reach the measured program
            self._buffer.add_diagnostics([_failed(getattr(make, "__qualname__", "sampler"), error)])
            return
        if sampler is not None:
            self._live.append(sampler)

    def _read(self) -> None:
        sys.setprofile(None)  # remove the hook of a profiler of Python stacks
        for sampler in list(self._live):
            try:
                self._buffer.add(sampler.read())
            except Exception as error:  # as above
                self._buffer.add_diagnostics([_failed(sampler.name, error)])
                self._end(sampler)
        self._readings += 1
        if self._readings >= MAX_READINGS:
            self._buffer.thin()
            self._readings //= 2
            self._interval_s *= 2

    def _end(self, sampler: Sampler) -> None:
        self._live.remove(sampler)
        try:
            sampler.close()
            self._buffer.add_diagnostics(sampler.diagnostics())
        except Exception as error:  # as above
            self._buffer.add_diagnostics([_failed(sampler.name, error)])


def _failed(name: str, error: Exception) -> Diagnostic:
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    return Diagnostic(Level.WARN, f"sampling_{name}", f"sampling of {name} ended early: {summary}")


class SampledProgress:
    """Progress callback that also limits sampling to the steps: from the first to one reading after the last.

    Attributes:
        buffer: Samples; complete once the block of `sampling` has ended.
    """

    def __init__(self, progress: Progress, *, last: str = PROFILE) -> None:
        self.buffer = SampleBuffer()
        self._progress, self._last = progress, last
        self._began = self._ended = False

    def __call__(self, part: str, done: int, total: int) -> None:
        """Pass on the progress."""
        self._began = self._began or part in {MEASURE, PROFILE}
        self._ended = self._ended or (part == self._last and done == total)
        self._progress(part, done, total)

    @contextmanager
    def sampling(self, guard: int) -> Iterator[None]:
        """Sample the program of a guard, given by its process id, inside the block."""
        samplers = [_gated(make, self._gate()) for make in SAMPLERS]
        with sampling(pid=guard, samplers=samplers) as self.buffer:
            yield

    def _gate(self) -> Callable[[], bool]:
        """Return a condition for one sampler: true while steps run, and once after them."""
        last = iter([True])
        return lambda: self._began and (not self._ended or next(last, False))


def window_samplers(directory: Path, samplers: Sequence[MakeSampler] = SAMPLERS) -> list[MakeSampler]:
    """Return factories of samplers that read only while a process of the user's program is recorded.

    Args:
        directory: Folder of the recordings of those processes.
        samplers: Factories of samplers for the program's first process.
    """
    return [_gated(make, lambda: is_recording(directory)) for make in samplers]


def is_recording(directory: Path) -> bool:
    """Return whether a process has claimed a rank and has not written its trace yet."""
    names = {path.name for path in directory.iterdir()}
    claimed = {name.removesuffix(".claim") for name in names if name.endswith(".claim")}
    return any(f"{name}.facts" not in names for name in claimed)


def _gated(make: MakeSampler, condition: Callable[[], bool]) -> MakeSampler:
    """Return a factory by the id of a guard, of a sampler of its program that reads under a condition."""
    return lambda guard: _GatedSampler(make, guard, condition)


class _GatedSampler:
    def __init__(self, make: MakeSampler, guard: int, condition: Callable[[], bool]) -> None:
        self.name = "program"
        self._make, self._guard, self._condition = make, guard, condition
        self._sampler: Sampler | None = None

    def read(self) -> list[Sample]:
        if not self._condition():
            return []
        if self._sampler is None:
            program = _first_child(self._guard)
            self._sampler = self._make(program) if program else None
            if self._sampler is None:  # it has just ended
                return []
        return self._sampler.read()

    def close(self) -> None:
        if self._sampler:
            self._sampler.close()

    def diagnostics(self) -> list[Diagnostic]:
        return self._sampler.diagnostics() if self._sampler else []


def _first_child(guard: int) -> int | None:
    try:
        return next((process.pid for process in psutil.Process(guard).children()), None)
    except psutil.Error:  # it ended
        return None
