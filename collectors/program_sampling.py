"""Samples of the user's program while its window is recorded; before and after, nothing is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from .sampling import SAMPLERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tracekit.ingest import Sample
    from tracekit.meta import Diagnostic

    from .sampling import Sampler

    Make = Callable[[int], Sampler | None]


def in_window(directory: Path, samplers: Sequence[Make] = SAMPLERS) -> list[Make]:
    """Samplers of the program below a guard that read only while one of its processes is recorded.

    Args:
        directory: Where those processes say what they do.
        samplers: What makes the samplers, of the program's first process.
    """
    return [_gated(make, directory) for make in samplers]


def _gated(make: Make, directory: Path) -> Make:
    return lambda guard: _Gated(make, guard, directory)


class _Gated:
    def __init__(self, make: Make, guard: int, directory: Path) -> None:
        self.name = "program"
        self._make, self._guard, self._directory = make, guard, directory
        self._sampler: Sampler | None = None

    def read(self) -> list[Sample]:
        if not recording(self._directory):
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


def recording(directory: Path) -> bool:
    """Whether a process has taken a rank and has not written its trace yet."""
    names = {path.name for path in directory.iterdir()}
    taken = {name.removesuffix(".claim") for name in names if name.endswith(".claim")}
    return any(f"{name}.facts" not in names for name in taken)
