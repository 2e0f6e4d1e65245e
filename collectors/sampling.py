"""Samples taken while a program runs: every sampler that works here, read by one thread.

A sampler is read at once when sampling begins, then every `interval_s`, and once more at its end. Values are
stamped with the system's clock (ns since the epoch), on which traces of Kineto and nsys lie as well.
Nothing that fails here reaches the program: what could not be read is left out and said once.

Example:
    >>> with sampling(interval_s=0.05) as taken:
    ...     total = sum(range(1_000))
    >>> {one.metric for one in taken.samples()} >= {"rss_bytes", "threads"}
    True

They are taken from this process: in the measured one a thread would wait for Python's lock, and hold it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import psutil

from tracekit.runs.meta import Diagnostic, Level

from .nvml import NvmlSampler
from .process import ProcessSampler
from .protocol import MEASURE, PROFILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tracekit.ingest.write import Sample
    from tracekit.recording.collector import Progress


INTERVAL_S = 0.1
"""About how often NVML has something new, and long enough to cost the program well below 1%."""
MOST_READINGS = 2_000
"""After so many, every second is dropped and the interval doubled, so that a long program keeps its "
"memory."""


class Sampler(Protocol):
    """Something that can be read again and again; it is made, read and closed in one thread."""

    name: str

    def read(self) -> list[Sample]:
        """Take what there is now.

        Raises:
            Exception: Reading failed for good; the sampler is not read again.
        """
        ...

    def close(self) -> None:
        """Release what the sampler holds."""
        ...

    def diagnostics(self) -> list[Diagnostic]:
        """What it could not read, and why."""
        ...


SAMPLERS: Sequence[Callable[[int], Sampler | None]] = (ProcessSampler.of, NvmlSampler.of)
"""What makes a sampler of a process, by its id; None where it cannot work here."""


class Taken:
    """What was sampled; whole once the `with` block has ended."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, int | None, str], list[Sample]] = {}
        self._diagnostics: list[Diagnostic] = []

    def samples(self) -> tuple[Sample, ...]:
        """The samples so far, of all samplers, in order of time."""
        every = (sample for series in list(self._series.values()) for sample in series)
        return tuple(sorted(every, key=lambda sample: sample.t_unix_ns))

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What could not be sampled; each thing once."""
        return tuple(dict.fromkeys(self._diagnostics))

    def add(self, samples: Sequence[Sample]) -> None:
        """Keep samples."""
        for one in samples:
            self._series.setdefault((one.source, one.device, one.metric), []).append(one)

    def thin(self) -> None:
        """Drop every second sample of each metric; the first stays."""
        for series in self._series.values():
            series[:] = series[::2]

    def say(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Keep what could not be done."""
        self._diagnostics += diagnostics


@contextmanager
def sampling(
    *,
    interval_s: float = INTERVAL_S,
    pid: int | None = None,
    samplers: Sequence[Callable[[int], Sampler | None]] = SAMPLERS,
) -> Iterator[Taken]:
    """Sample while the block runs.

    Args:
        interval_s: Seconds from one reading to the next; a reading that takes longer delays the next.
        pid: The measured process, with its children; this one by default.
        samplers: What makes the samplers.

    Yields:
        What is taken; whole when the block has ended.
    """
    taken, stop = Taken(), threading.Event()
    work = _Work(taken, stop, interval_s, os.getpid() if pid is None else pid, samplers)
    thread = threading.Thread(target=work.run, name="tracekit-sampling", daemon=True)
    thread.start()
    work.began.wait()
    try:
        yield taken
    finally:
        stop.set()
        thread.join()


class _Work:
    """What the thread does."""

    def __init__(
        self,
        taken: Taken,
        stop: threading.Event,
        interval_s: float,
        pid: int,
        samplers: Sequence[Callable[[int], Sampler | None]],
    ) -> None:
        self.began = threading.Event()
        self._taken, self._stop, self._interval_s, self._pid = taken, stop, interval_s, pid
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

    def _start(self, make: Callable[[int], Sampler | None]) -> None:
        try:
            sampler = make(self._pid)
        except Exception as error:  # whatever breaks here must not reach the measured program
            self._taken.say([_failed(getattr(make, "__qualname__", "sampler"), error)])
            return
        if sampler is not None:
            self._live.append(sampler)

    def _read(self) -> None:
        sys.setprofile(None)  # a profiler of Python stacks has put itself into this thread as well
        for sampler in list(self._live):
            try:
                self._taken.add(sampler.read())
            except Exception as error:  # the same
                self._taken.say([_failed(sampler.name, error)])
                self._end(sampler)
        self._readings += 1
        if self._readings >= MOST_READINGS:
            self._taken.thin()
            self._readings //= 2
            self._interval_s *= 2

    def _end(self, sampler: Sampler) -> None:
        self._live.remove(sampler)
        try:
            sampler.close()
            self._taken.say(sampler.diagnostics())
        except Exception as error:  # the same
            self._taken.say([_failed(sampler.name, error)])


def _failed(name: str, error: Exception) -> Diagnostic:
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    return Diagnostic(Level.WARN, f"sampling_{name}", f"sampling of {name} ended early: {said}")


if TYPE_CHECKING:
    Make = Callable[[int], Sampler | None]


class Watched:
    """Progress that is passed on, and samples from the first timed step on until one behind the last.

    Attributes:
        taken: What was sampled; whole once the block of `sampling` has ended.
    """

    def __init__(self, progress: Progress, *, last: str = PROFILE) -> None:
        self.taken = Taken()
        self._progress, self._last = progress, last
        self._began = self._ended = False

    def __call__(self, part: str, done: int, total: int) -> None:
        """Told how far the recording is."""
        self._began = self._began or part in {MEASURE, PROFILE}
        self._ended = self._ended or (part == self._last and done == total)
        self._progress(part, done, total)

    @contextmanager
    def sampling(self, guard: int) -> Iterator[None]:
        """Sample the program below the process of this id while the block runs."""
        samplers = [_gated(make, self._gate()) for make in SAMPLERS]
        with sampling(pid=guard, samplers=samplers) as self.taken:
            yield

    def _gate(self) -> Callable[[], bool]:
        """Whether one sampler is to read: while steps run, and once more, however late its turn comes."""
        more = iter([True])
        return lambda: self._began and (not self._ended or next(more, False))


def in_window(directory: Path, samplers: Sequence[Make] = SAMPLERS) -> list[Make]:
    """Samplers that read only while a process of the user's program is recorded.

    Args:
        directory: Where those processes say what they do.
        samplers: What makes the samplers, of the program's first process.
    """
    return [_gated(make, lambda: recording(directory)) for make in samplers]


def recording(directory: Path) -> bool:
    """Whether a process has taken a rank and has not written its trace yet."""
    names = {path.name for path in directory.iterdir()}
    taken = {name.removesuffix(".claim") for name in names if name.endswith(".claim")}
    return any(f"{name}.facts" not in names for name in taken)


def _gated(make: Make, when: Callable[[], bool]) -> Make:
    """What makes a sampler of the program below a guard, by the guard's id, that reads only now and then."""
    return lambda guard: _Gated(make, guard, when)


class _Gated:
    def __init__(self, make: Make, guard: int, when: Callable[[], bool]) -> None:
        self.name = "program"
        self._make, self._guard, self._when = make, guard, when
        self._sampler: Sampler | None = None

    def read(self) -> list[Sample]:
        if not self._when():
            return []
        if self._sampler is None:
            program = _child(self._guard)
            self._sampler = self._make(program) if program else None
            if self._sampler is None:  # it ended just now
                return []
        return self._sampler.read()

    def close(self) -> None:
        if self._sampler:
            self._sampler.close()

    def diagnostics(self) -> list[Diagnostic]:
        return self._sampler.diagnostics() if self._sampler else []


def _child(guard: int) -> int | None:
    try:
        return next((process.pid for process in psutil.Process(guard).children()), None)
    except psutil.Error:  # it ended
        return None
