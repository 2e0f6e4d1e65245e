"""From a report of nsys to SQLite, and what an export lacks."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tracekit.runs.meta import Diagnostic, Level

from ..children import child
from . import tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from .tool import Nsys


_KIND = "CUPTI_ACTIVITY_KIND_"
DEVICE_WORK = tuple(_KIND + name for name in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
HOST_WORK = (_KIND + "RUNTIME", "NVTX_EVENTS", "OSRT_API")
_WARNING = 2


def exported(nsys: Nsys, report: Path) -> Path:
    """The SQLite export of a report, made beside it; takes as long as it takes.

    Raises:
        CollectionError: nsys failed; the report is kept, and the message says where.
    """
    output, log = report.with_suffix(".sqlite"), report.with_name("export.txt")
    command = tool.exporting(nsys, report, output)
    with (
        log.open("wb") as words,
        child(command, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT) as process,
    ):
        code = process.wait()
    if code or not _readable(output):
        raise tool.not_exported(nsys, report, code, log.read_text(errors="replace"))
    return output


def has_rows(export: Path, tables: tuple[str, ...]) -> bool:
    """Whether any of these tables holds a row; one that is absent holds none."""
    with closing(_open(export)) as database:
        return any(_has_row(database, table) for table in tables)


def reason(export: Path) -> str:
    """What nsys itself says of missing data: its gravest and latest diagnostic, in one line; else empty."""
    with closing(_open(export)) as database, suppress(sqlite3.OperationalError):
        query = "SELECT text FROM DIAGNOSTIC_EVENT WHERE severity >= ? ORDER BY severity DESC, timestamp DESC"
        for (text,) in database.execute(query, (_WARNING,)):
            if text and text.strip():
                return str(text).strip().splitlines()[0].rstrip(".")
    return ""


def _open(export: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(export.absolute()))}?mode=ro", uri=True)


def _readable(export: Path) -> bool:
    try:
        with closing(_open(export)) as database:
            return bool(database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.Error:
        return False


def _has_row(database: sqlite3.Connection, table: str) -> bool:
    try:
        return database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None  # noqa: S608 (ours)
    except sqlite3.OperationalError:
        return False


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


def refuse_empty(trace: Path, *, device: str) -> None:
    """Refuse an export without what was to be recorded.

    Raises:
        CollectionError: It is empty; the message holds the reason that nsys gives.
    """
    if device == "cpu":
        if not has_rows(trace, (*HOST_WORK, *DEVICE_WORK)):
            raise tool.empty("work at all", reason(trace))
    elif not has_rows(trace, DEVICE_WORK):
        raise tool.empty("work of a GPU", reason(trace))


def told_options(command: list[str]) -> list[str]:
    """The options of a recording, without the paths of this machine."""
    return [word for word in command if word.startswith("--") and not word.startswith("--output")]


def diagnostics(nsys: Nsys, code: int, notes: Iterable[tuple[str, str]]) -> Iterator[Diagnostic]:
    """What a reader of the run should know of its recording.

    Args:
        nsys: Who recorded.
        code: The exit code of nsys, which is the program's, if nobody has told of it yet.
        notes: Codes and messages that the program told.
    """
    if code:
        message = f"nsys or the program ended with exit code {code} after the recording"
        yield Diagnostic(Level.WARN, "nsys_exit_code", message)
    for name, message in notes:
        yield Diagnostic(Level.WARN, name, message)
    for loss in tool.lost_options(nsys):
        yield Diagnostic(Level.INFO, "nsys_too_old", f"nsys {nsys.version} is too old: {loss}")


def stacks_ignored(*, asked: bool) -> list[tuple[str, str]]:
    """What to tell who asked for Python call stacks."""
    return [("stacks_ignored", "--stacks was left out: nsys is not asked for Python call stacks")] * asked


def sampled(told: dict[str, Any]) -> list[Diagnostic]:
    """What samplers in the measured process told."""
    return [Diagnostic(Level(one["level"]), one["code"], one["message"]) for one in told["diagnostics"]]
