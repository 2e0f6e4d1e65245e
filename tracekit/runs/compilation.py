"""Compilations of `torch.compile` in a run, counted by torch; part of the run's `workload`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tracekit.errors import UnusableInputError
from tracekit.runs.meta import Diagnostic, Level, RunMeta

KEY: Final = "compilation"
"""Key in `workload`."""
WARM_UP, TIMED, PROFILED = "warm-up", "timed", "profiled"
"""Parts of a recording in which something can be compiled."""
BACKWARD: Final = "backward"
"""The function of a compilation that made the backward pass of an earlier one."""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """One compilation.

    Attributes:
        id: Torch's `i/j`: the frame that was compiled, and which compilation of it this is.
        function: The Python function of the frame, or `backward`.
        part: When: `warm-up`, `timed` or `profiled`.
        dur_ns: Host time, in whole microseconds.
        ops: Operations of its graph; None for a backward pass, which torch does not count.
        guards: Conditions that are checked before each call; None for a backward pass.
        reason: The failed guard that caused it; empty for the first one of its frame.
        failed: Why it failed, so that the frame runs eagerly; empty if it succeeded.
    """

    id: str
    function: str
    part: str
    dur_ns: int
    ops: int | None = None
    guards: int | None = None
    reason: str = ""
    failed: str = ""

    @property
    def frame(self) -> str:
        """The frame of its id."""
        return self.id.partition("/")[0]

    @property
    def again(self) -> bool:
        """Whether it is a recompilation of its frame."""
        return self.function != BACKWARD and self.id.partition("/")[2] != "0"


@dataclass(frozen=True, kw_only=True)
class Break:
    """A reason for graph breaks."""

    reason: str  # the reason in one line
    explanation: str  # explanation and advice
    functions: tuple[str, ...]  # the Python functions
    frames: int  # number of frames
    times: int  # number of occurrences in compilations; each recompilation counts


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """Compilations of a run."""

    first_call_ns: int | None  # time of the first step, which compiles; None where there was no warm-up
    graphs: int  # graphs compiled by the backend
    cached: int = 0  # graphs that Inductor found in its cache on disk
    breaks: tuple[Break, ...]  # graph breaks by reason
    compilations: tuple[Compiled, ...]  # each, in order

    @property
    def compile_ns(self) -> int:
        """Time of all compilations."""
        return sum(compiled.dur_ns for compiled in self.compilations)

    @property
    def guards(self) -> int:
        """Guards of all compilations."""
        return sum(compiled.guards or 0 for compiled in self.compilations)

    @property
    def graph_breaks(self) -> int:
        """Number of frames with a graph break."""
        return sum(reason.frames for reason in self.breaks)

    @property
    def recompilations(self) -> tuple[Compiled, ...]:
        """Recompilations."""
        return tuple(compiled for compiled in self.compilations if compiled.again)

    @property
    def late(self) -> tuple[Compiled, ...]:
        """Compilations after the warm-up."""
        return tuple(compiled for compiled in self.compilations if compiled.part != WARM_UP)


def read(meta: RunMeta) -> Compilation | None:
    """Return the compilations of a run; None if nothing was compiled or counted.

    Raises:
        UnusableInputError: The metadata is damaged.
    """
    return parse((meta.workload or {}).get(KEY))


def parse(content: dict[str, Any] | None) -> Compilation | None:
    """Parse the output of a collector.

    Raises:
        UnusableInputError: The format is unknown.
    """
    if content is None:
        return None
    try:
        return msgspec.convert(content, Compilation)
    except msgspec.ValidationError as error:
        message = f"the compilation data of the run is damaged: {error}"
        raise UnusableInputError(message, hint="collect the run again") from error


def diagnostics(compilation: Compilation | None) -> Iterator[Diagnostic]:
    """Yield diagnostics of compilations that affect the run's times."""
    late = compilation.late if compilation else ()
    for part in (TIMED, PROFILED):
        of_part = [compiled for compiled in late if compiled.part == part]
        if of_part:
            count = f"{len(of_part)} compilation{'s' * (len(of_part) != 1)}"
            why = next((f": {compiled.reason}" for compiled in of_part if compiled.reason), "")
            message = f"{count} ran in {part} steps, which are therefore not steady{why}"
            yield Diagnostic(Level.WARN, f"compiled_in_{part}_steps", message)
