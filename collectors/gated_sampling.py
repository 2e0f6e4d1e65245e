"""Samples of a program below a guard, while there is something to sample; before and after, nothing is read.

They are taken from this process: in the measured one a thread would wait for Python's lock, and hold it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from .protocol import MEASURE, PROFILE
from .sampling import SAMPLERS, Taken, sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tracekit.collecting import Progress
    from tracekit.ingest import Sample
    from tracekit.meta import Diagnostic

    from .sampling import Sampler

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
