"""What a collector is, and what it hands over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.collecting.request import Program, Request
    from tracekit.ingest import Sample
    from tracekit.meta import Diagnostic, Timings

Progress = Callable[[str, int, int], None]
"""Told the part that runs, how many of its steps are done, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a collector recorded.

    Attributes:
        traces: One trace per rank, inside the directory the collector was given.
        device: The device it ran on.
        threads: Threads an operation could use.
        version: Version of the profiler.
        options: Options the profiler ran with.
        compilation: What was compiled, as `tracekit.compilation` reads it; None where nothing is.
        exit_code: The program's own; of one that a signal ended, 128 and the signal's number.
    """

    traces: tuple[Path, ...]
    device: str
    threads: int
    version: str
    timings: Timings | None
    samples: tuple[Sample, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    exit_code: int = 0
    compilation: dict[str, Any] | None = None


class Collector(Protocol):
    """A plug-in that can record a built-in workload, or the user's own program."""

    name: str

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """Run the workload in a fresh process and record it into `directory`.

        Raises:
            CollectionError: The program or the profiler failed.
            UnusableInputError: The request cannot be met here.
        """
        ...

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """Run the user's program with this process's standard streams and record it into `directory`.

        Whatever the program's exit code, what was recorded is handed over.

        Raises:
            ProgramFailedError: The program failed, and nothing was recorded.
            CollectionError: Nothing was recorded, or the profiler failed.
            UnusableInputError: The program cannot be started, or not recorded here.
        """
        ...


def silent(_part: str, _done: int, _total: int) -> None:
    """Progress that nobody watches."""
