"""Run a program under nsys; what it leaves is a report, or an error that says why there is none."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..children import child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

REPORT = "run"
SUFFIXES = (".nsys-rep", ".qdrep")
"""Of reports; the second one before 2021.4."""
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Captured:
    """How a program under nsys ended.

    Attributes:
        code: The exit code of nsys, which is the program's own if nsys did its work.
        report: What nsys recorded; None when there is no report.
        log: What both printed.
    """

    code: int
    report: Path | None
    log: str


def captured(
    command: list[str], directory: Path, *, watch: Callable[[Iterator[str]], None], told: Path
) -> Captured:
    """Run nsys with a program that appends lines to a file, with what is printed going to a log.

    Args:
        command: nsys, its options, and the program.
        directory: Where the report goes.
        told: The file that the program appends to.
        watch: Given its lines, as they come, until nsys has ended.
    """
    log = directory / "nsys.txt"
    told.touch()
    with (
        log.open("wb") as words,
        child(command, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT) as process,
    ):
        watch(_growing(told, process))
        code = process.wait()
    return Captured(code=code, report=report_in(directory), log=log.read_text(errors="replace"))


def report_in(directory: Path) -> Path | None:
    """The report in a recording's folder; an empty file is none."""
    paths = [directory / f"{REPORT}{suffix}" for suffix in SUFFIXES]
    return next((path for path in paths if path.is_file() and path.stat().st_size), None)


def _growing(path: Path, process: subprocess.Popen[str]) -> Iterator[str]:
    """The lines of a file that grows until the process ends."""
    with path.open(encoding="utf-8") as stream:
        rest = ""
        while True:
            ended = process.poll() is not None  # before the read, which then meets all there will be
            *lines, rest = (rest + stream.read()).split("\n")
            yield from lines
            if ended:
                return
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
