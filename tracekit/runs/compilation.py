"""What `torch.compile` did while a run was recorded, as torch counted it: part of the run's `workload`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tracekit.errors import UnusableInputError
from tracekit.runs.meta import Diagnostic, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.runs.meta import RunMeta

KEY: Final = "compilation"
"""Where it stands in `workload`."""
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
        dur_ns: Time it took on the host, to whole microseconds.
        ops: Operations its graph holds; None of a backward pass, which torch does not count.
        guards: Conditions to check before each call; None likewise.
        reason: The guard whose failure made it necessary; empty of the first of its frame.
        failed: Why nothing came of it, so that the frame runs eagerly; empty where it went well.
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
        """Whether its frame had been compiled before, and inputs did not fit."""
        return self.function != BACKWARD and self.id.partition("/")[2] != "0"


@dataclass(frozen=True, kw_only=True)
class Break:
    """One reason for which graphs ended before their function did.

    Attributes:
        reason: In one line.
        explanation: And what to do.
        functions: Where: the Python functions.
        frames: How many frames it ended.
        times: How often a compilation met it; compiling again counts again.
    """

    reason: str
    explanation: str
    functions: tuple[str, ...]
    frames: int
    times: int


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """All that was compiled.

    Attributes:
        first_call_ns: Time of the first step, which compiles; None where there was no warm-up.
        graphs: Graphs that were handed to the backend.
        cached: Graphs whose code Inductor took from its cache on disk, where an earlier process left it.
        breaks: Graph breaks by reason.
        compilations: Each, in order.
    """

    first_call_ns: int | None
    graphs: int
    cached: int = 0
    breaks: tuple[Break, ...]
    compilations: tuple[Compiled, ...]

    @property
    def compile_ns(self) -> int:
        """Time of all compilations."""
        return sum(one.dur_ns for one in self.compilations)

    @property
    def guards(self) -> int:
        """Guards of all frames; of one that was compiled again those of each compilation."""
        return sum(one.guards or 0 for one in self.compilations)

    @property
    def graph_breaks(self) -> int:
        """Frames that a graph break ended, by reason."""
        return sum(one.frames for one in self.breaks)

    @property
    def recompilations(self) -> tuple[Compiled, ...]:
        """Those of a frame that had been compiled before."""
        return tuple(one for one in self.compilations if one.again)

    @property
    def late(self) -> tuple[Compiled, ...]:
        """Those after the warm-up, in steps that were to be steady."""
        return tuple(one for one in self.compilations if one.part != WARM_UP)


def read(meta: RunMeta) -> Compilation | None:
    """What a run keeps of its compilation; None where nothing was compiled, or nobody counted.

    Raises:
        UnusableInputError: The metadata is damaged.
    """
    return parse((meta.workload or {}).get(KEY))


def parse(content: dict[str, Any] | None) -> Compilation | None:
    """Read what a collector wrote.

    Raises:
        UnusableInputError: It is something else.
    """
    if content is None:
        return None
    try:
        return msgspec.convert(content, Compilation)
    except msgspec.ValidationError as error:
        raise UnusableInputError(
            f"the compilation data of the run is damaged: {error}", hint="collect the run again"
        ) from error


def diagnostics(found: Compilation | None) -> Iterator[Diagnostic]:
    """What a reader of the run's times must know."""
    late = found.late if found else ()
    for part in (TIMED, PROFILED):
        own = [one for one in late if one.part == part]
        if own:
            count = f"{len(own)} compilation{'s' * (len(own) != 1)}"
            why = next((f": {one.reason}" for one in own if one.reason), "")
            message = f"{count} ran in {part} steps, which are therefore not steady{why}"
            yield Diagnostic(Level.WARN, f"compiled_in_{part}_steps", message)
