"""Run a program under nsys, export its report to SQLite, and check what the export contains."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tracekit.runs.meta import Diagnostic, Level

from ..children import child
from . import tool
from .tool import Nsys

REPORT = "run"
SUFFIXES = (".nsys-rep", ".qdrep")
"""Suffixes of reports; the second one before version 2021.4."""
UNPROCESSED = ".qdstrm"
"""Suffix of the data that nsys processes into a report."""
_POLL_SECONDS = 0.1
_KIND = "CUPTI_ACTIVITY_KIND_"
DEVICE_WORK = tuple(_KIND + name for name in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
HOST_WORK = (_KIND + "RUNTIME", "NVTX_EVENTS", "OSRT_API")
_WARNING = 2
"""Severity of a warning in DIAGNOSTIC_EVENT."""


@dataclass(frozen=True, kw_only=True)
class NsysResult:
    """Result of a program under nsys.

    Attributes:
        code: Exit code of nsys, which is the program's if nsys succeeded.
        report: Path of the report; None if there is none.
        log: Output of nsys and the program.
    """

    code: int
    report: Path | None
    log: str


def run_nsys(
    command: list[str], directory: Path, *, watch: Callable[[Iterator[str]], None], events: Path
) -> NsysResult:
    """Run a program under nsys, with their output in a log.

    Args:
        command: nsys, its options, and the program.
        directory: Folder of the report and the log.
        events: File to which the program appends lines.
        watch: Called with an iterator over these lines, until nsys has ended.
    """
    log = directory / "nsys.txt"
    events.touch()
    with (
        log.open("wb") as output,
        child(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        watch(_follow(events, process))
        code = process.wait()
    return NsysResult(code=code, report=find_report(directory), log=log.read_text(errors="replace"))


def find_report(directory: Path) -> Path | None:
    """Return the report in a folder; None if it is missing or empty."""
    return _find(directory, SUFFIXES)


def check_processed(directory: Path) -> None:
    """Check that a folder without a report has no unprocessed data of one.

    Raises:
        CollectionError: It has; the message has the path where they are saved.
    """
    raw = _find(directory, (UNPROCESSED,))
    if raw is not None:
        raise tool.unprocessed_error(raw)


def _find(directory: Path, suffixes: Iterable[str]) -> Path | None:
    paths = [directory / f"{REPORT}{suffix}" for suffix in suffixes]
    return next((path for path in paths if path.is_file() and path.stat().st_size), None)


def _follow(path: Path, process: subprocess.Popen[str]) -> Iterator[str]:
    """Iterate over the lines of a file that grows until the process ends."""
    with path.open(encoding="utf-8") as stream:
        rest = ""
        while True:
            ended = process.poll() is not None  # before the last read, so that it is complete
            *lines, rest = (rest + stream.read()).split("\n")
            yield from lines
            if ended:
                return
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)


def export_report(nsys: Nsys, report: Path) -> Path:
    """Export a report to SQLite, in the same folder.

    Raises:
        CollectionError: nsys failed; the message has the path of the saved report.
    """
    export, log = report.with_suffix(".sqlite"), report.with_name("export.txt")
    command = tool.export_command(nsys, report, export)
    with (
        log.open("wb") as output,
        child(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        code = process.wait()
    if code or not _readable(export):
        raise tool.export_error(nsys, report, code, log.read_text(errors="replace"))
    return export


def has_rows(export: Path, tables: tuple[str, ...]) -> bool:
    """Return whether any of these tables exists and has rows."""
    with closing(_open(export)) as database:
        return any(_has_row(database, table) for table in tables)


def worst_diagnostic(export: Path) -> str:
    """Return the first line of nsys' latest diagnostic of the highest severity; empty if there is none."""
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
        return database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None  # noqa: S608 (a constant)
    except sqlite3.OperationalError:
        return False


def check_not_empty(trace: Path, *, device: str) -> None:
    """Check that an export has the requested data.

    Raises:
        CollectionError: It has none; the message has the worst diagnostic of nsys.
    """
    if device == "cpu":
        if not has_rows(trace, (*HOST_WORK, *DEVICE_WORK)):
            raise tool.empty_report_error("activity", worst_diagnostic(trace))
    elif not has_rows(trace, DEVICE_WORK):
        raise tool.empty_report_error("GPU activity", worst_diagnostic(trace))


def recorded_options(command: list[str]) -> list[str]:
    """Return the options of a command without paths."""
    return [word for word in command if word.startswith("--") and not word.startswith("--output")]


def diagnostics(nsys: Nsys, code: int, notes: Iterable[tuple[str, str]]) -> Iterator[Diagnostic]:
    """Report problems of a recording.

    Args:
        nsys: Installation of nsys.
        code: Exit code of nsys, or 0 if it is reported already.
        notes: Codes and messages of the program.
    """
    if code:
        message = f"nsys or the program ended with exit code {code} after the recording"
        yield Diagnostic(Level.WARN, "nsys_exit_code", message)
    for name, message in notes:
        yield Diagnostic(Level.WARN, name, message)
    for loss in tool.unsupported_settings(nsys):
        yield Diagnostic(Level.INFO, "nsys_too_old", f"nsys {nsys.version} is too old: {loss}")


def stacks_ignored(*, requested: bool) -> list[tuple[str, str]]:
    """Return a note if Python call stacks were requested."""
    return [("stacks_ignored", "--stacks was left out: not supported with --collector nsys")] * requested
