"""Profilers that the program starts itself: torch allows one at a time, and the program's comes first."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Protocol
from weakref import WeakSet


class Recorder(Protocol):
    """What gives way to a profiler of the program."""

    def uses(self, profiler: object) -> bool:
        """Return whether this is the recorder's own `torch.autograd.profiler.profile`."""

    def give_way(self) -> None:
        """Stop using torch's profiler: the program is about to."""


class ProgramProfilers:
    """The profilers of the program that are warming up or running.

    Follows `torch.autograd.profiler.profile`, which all profilers of torch use, until the process ends. A
    profiler with a schedule is prepared some steps before it starts: torch then reports none that is enabled,
    and a second one would make the program fail when its own starts.

    Args:
        torch: The program's torch.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._active: WeakSet[object] = WeakSet(_find_warming(torch))
        self._recorders: WeakSet[Recorder] = WeakSet()
        profile = torch.autograd.profiler.profile
        for name in ("_prepare_trace", "_start_trace"):
            _wrap(profile, name, before=self._begins)
        _wrap(profile, "__exit__", before=self._active.discard)

    def add(self, recorder: Recorder) -> None:
        """Let a recorder give way from now on."""
        self._recorders.add(recorder)

    def are_active(self) -> bool:
        """Return whether one is warming up, or any profiler of torch is running."""
        return bool(self._active or self._torch.autograd.profiler._is_profiler_enabled)

    def _begins(self, profiler: object) -> None:
        recorders = list(self._recorders)
        if any(recorder.uses(profiler) for recorder in recorders):
            return
        self._active.add(profiler)
        for recorder in recorders:
            recorder.give_way()


def _find_warming(torch: Any) -> list[object]:
    """Return the profilers that were prepared before; torch keeps no list of them."""
    module = torch.profiler
    profiles = [item for item in gc.get_objects() if type(item) is module.profile and item.profiler]
    warming = [item.profiler for item in profiles if item.current_action is module.ProfilerAction.WARMUP]
    return [profiler for profiler in warming if profiler.kineto_results is None]  # not ended since


def _wrap(owner: type, name: str, *, before: Callable[[Any], None]) -> None:
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        before(self)
        return original(self, *arguments, **named)

    setattr(owner, name, wrapped)


@cache
def follow(torch: Any) -> ProgramProfilers:
    """Return the profilers of the program, which are followed from the first call on."""
    return ProgramProfilers(torch)
