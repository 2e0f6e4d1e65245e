"""Collector that records with Nsight Systems: CUDA activity, ops and steps as NVTX ranges, OS calls.

A workload is timed in a process without nsys, then recorded in another one under nsys (`measured`); the
report is exported to SQLite.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.ingest.nsys.report import SUFFIXES
from tracekit.ingest.nsys.rows import WARNING
from tracekit.ingest.nsys.sqlite import open_database
from tracekit.recording.collector import Program, Progress, Recording, Request
from tracekit.recording.doctor import Check, Status
from tracekit.runs import environment
from tracekit.runs.meta import Diagnostic, Level
from tracekit.workloads.base import LIBTORCH

from .. import program as programs
from .. import workload_process
from ..children import child
from ..protocol import follow, read_result, result_of, run_process, samples
from . import tool
from .measured import EVENTS, REQUEST
from .tool import Nsys

REPORT = "run"
UNPROCESSED = ".qdstrm"
"""Suffix of the data that nsys processes into a report."""
DEVICE_WORK = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
HOST_WORK = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API", "PROFILER_OVERHEAD")
LOG = "nsys.txt"
"""File of what nsys prints."""
_MEASURED = (sys.executable, "-P", "-m", "tracekit.collectors.nsys.measured")
_POLL_SECONDS = 0.1
_SAMPLED = "sampled memory, threads and CPU time include those of nsys"


class NsysCollector:
    """Records workloads and programs with Nsight Systems."""

    name = "nsys"

    def check(self) -> Check:
        """Check the installation of nsys for `tracekit doctor`."""
        try:
            nsys = tool.find()
        except CollectionError as error:
            return Check("nsys", Status.MISSING, error.message, error.hint)
        detail = f"{nsys.version}, {nsys.path}"
        if losses := tool.unsupported_settings(nsys):
            detail = f"{detail}; too old: {'; '.join(losses)}"
            return Check("nsys", Status.WARN, detail, "install a newer one")
        return Check("nsys", Status.OK, detail)

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record`."""
        if request.level == LIBTORCH:
            raise UnusableInputError("nsys cannot record --level libtorch", hint="use --collector torch")
        if request.compile_artifacts:
            message = "nsys cannot record a workload with --compile-artifacts"
            raise UnusableInputError(message, hint="use --collector torch")
        nsys = tool.find()
        unprofiled = replace(request, no_profile=True)
        measured = run_process(workload_process.COMMAND, unprofiled, directory, progress)
        timed = read_result(measured, version=nsys.version, options={})
        decided = replace(request, device=timed.device, batch_size=timed.batch_size)
        command = tool.profile_command(nsys, directory / REPORT, device=decided.device)
        report, code, result = _run_under_nsys(command, decided, directory, progress)
        traces, empty = _export(nsys, report, decided.device, progress)
        notes = (*result["notes"], *explain_ignored_stacks(requested=request.stacks))
        sampled = [
            Diagnostic(**{**values, "level": Level(values["level"])}) for values in result["diagnostics"]
        ]
        return replace(
            timed,
            traces=traces,
            samples=(*timed.samples, *samples(result)),
            options={"arguments": _recorded_options(command)},
            diagnostics=(*empty, *sampled, *timed.diagnostics, *diagnostics(nsys, code, notes)),
        )

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record_program`."""
        if program.every:
            message = "--every does not apply to --collector nsys, which records one window"
            raise UnusableInputError(message, hint="use --collector torch, or remove --every")
        nsys = tool.find()
        guessed = _guess_device()
        command = tool.profile_command(nsys, directory.resolve() / REPORT, device=guessed)
        log = directory.resolve() / LOG
        code, sampled = programs.run(program, directory, wrapper=command, log=log)
        jobs, text = programs.read_jobs(directory), log.read_text(errors="replace")
        if not log.with_name(programs.STARTED).exists():
            raise tool.recording_error(text, code)
        if not jobs:
            raise programs.failure(program, directory, code)
        ranks = jobs[0]
        recording = programs.make_recording(program, directory, ranks, code=code, sampled=sampled)
        report = _find_report(directory)
        if report is None:
            _check_processed(directory)
            raise tool.missing_report_error(text, code, by_range=guessed != "cpu", device=recording.device)
        if guessed == "cpu" != recording.device:
            raise CollectionError(  # a program may use a GPU that was not visible before it started
                "nsys was not asked to record the GPU: NVML listed none, or CUDA_VISIBLE_DEVICES hid it",
                hint="see `tracekit doctor`, set CUDA_VISIBLE_DEVICES before the program, or use "
                "--collector torch",
            )
        traces, empty = _export(nsys, report, recording.device, progress)
        ignored = explain_ignored_stacks(requested=program.stacks)
        problems = programs.diagnostics(directory, ranks, code)
        with_nsys = Diagnostic(Level.INFO, "samples_with_nsys", _SAMPLED)
        return replace(
            recording,
            traces=traces,
            version=nsys.version,
            options={**recording.options, "arguments": _recorded_options(command)},
            diagnostics=(
                *empty,
                *problems,
                with_nsys,
                *sampled.diagnostics(),
                *diagnostics(nsys, 0, ignored),
            ),
        )


def _guess_device() -> str:
    """Guess the device of a program before it runs; it opens a window only if it uses a GPU."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in {"", "-1"}:
        return "cpu"
    return "cuda" if environment.nvml_gpus() else "cpu"


def _run_under_nsys(
    command: list[str], request: Request, directory: Path, progress: Progress
) -> tuple[Path, int, dict[str, Any]]:
    """Run the steps under nsys; returns its report, its exit code, and the result of the program."""
    # nsys prints to the standard streams, so the program appends its events to a file
    path, events, log = directory / REQUEST, directory / EVENTS, directory / LOG
    path.write_text(json.dumps(asdict(request)))
    events.touch()
    with (
        log.open("wb") as output,
        child(
            [*command, *_MEASURED, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        final = follow(_follow_file(events, process), progress)
        code = process.wait()
    report, text = _find_report(directory), log.read_text(errors="replace")
    if final is None and not events.stat().st_size:
        raise tool.recording_error(text, code)  # the program was not started
    ended = 128 - code if code > 128 else code  # as `Popen.returncode` reports a signal
    result = result_of(final, name=request.workload, code=ended, log=tool.error_line(text))
    if report is None:
        _check_processed(directory)
        raise tool.recording_error(text, code, by_range=request.device != "cpu")
    return report, code, result


def _follow_file(path: Path, process: subprocess.Popen[str]) -> Iterator[str]:
    """Iterate over the lines of a file that grows until the process ends."""
    with path.open(encoding="utf-8") as stream:
        rest, ended_s = "", None
        while True:
            ended = process.poll() is not None  # before the last read, so that it is complete
            *lines, rest = (rest + stream.read()).split("\n")
            if any('"event": "progress"' not in line for line in lines):  # its last one
                ended_s = time.monotonic()
            yield from lines
            if ended:
                return
            programs.check_profiler(ended_s)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)


def _check_processed(directory: Path) -> None:
    """Raise that a folder without a report has unprocessed data of one, if it has, and where it is saved."""
    if raw := _find_report(directory, (UNPROCESSED,)):
        raise tool.unprocessed_error(raw)


def _find_report(directory: Path, suffixes: Iterable[str] = SUFFIXES) -> Path | None:
    """Return the report in a folder; None if it is missing or empty."""
    paths = [directory / f"{REPORT}{suffix}" for suffix in suffixes]
    return next((path for path in paths if path.is_file() and path.stat().st_size), None)


def _export(
    nsys: Nsys, report: Path, device: str, progress: Progress
) -> tuple[tuple[Path, ...], tuple[Diagnostic, ...]]:
    """Export a report to SQLite, in the same folder, and check that it has the requested data.

    On the CPU nsys may lose everything, as 2022.4 and 2023.4 do on a busy machine: what was timed is kept.

    Returns:
        The export, and a note if it is left out.
    """
    progress("export", 0, 1)
    export, log = report.with_suffix(".sqlite"), report.with_name("export.txt")
    command = tool.export_command(nsys, report, export)
    with (
        log.open("wb") as output,
        child(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        code = process.wait()
    if code or not _is_readable(export):
        raise tool.export_error(nsys, report, code, log.read_text(errors="replace"))
    progress("export", 1, 1)
    on_cpu = device == "cpu"
    if not has_rows(export, (*HOST_WORK, *DEVICE_WORK) if on_cpu else DEVICE_WORK):
        what, reason = "activity" if on_cpu else "GPU activity", worst_diagnostic(export)
        message = f"nsys recorded no {what}" + (f": nsys says {reason!r}" if reason else "")
        if on_cpu:
            note = f"{message}; only step times and samples are kept: record again"
            return (), (Diagnostic(Level.WARN, "nothing_recorded", note),)
        hint = "see `tracekit doctor` for driver and permissions, or use --collector torch"
        raise CollectionError(message, hint=hint)
    return (export,), ()


def has_rows(export: Path, tables: tuple[str, ...]) -> bool:
    """Return whether any of these tables exists and has rows."""
    with closing(open_database(export)) as database:
        for table in tables:
            with suppress(sqlite3.OperationalError):  # there is no such table
                if database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone():  # noqa: S608 (a constant)
                    return True
    return False


def worst_diagnostic(export: Path) -> str:
    """Return the first line of nsys' latest diagnostic of the highest severity; empty if there is none."""
    with closing(open_database(export)) as database, suppress(sqlite3.OperationalError):
        query = "SELECT text FROM DIAGNOSTIC_EVENT WHERE severity >= ? ORDER BY severity DESC, timestamp DESC"
        for (text,) in database.execute(query, (WARNING,)):
            if text and text.strip():
                return str(text).strip().splitlines()[0].rstrip(".")
    return ""


def _is_readable(export: Path) -> bool:
    try:
        with closing(open_database(export)) as database:
            return bool(database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.Error:
        return False


def _recorded_options(command: list[str]) -> list[str]:
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


def explain_ignored_stacks(*, requested: bool) -> list[tuple[str, str]]:
    """Return a note if Python call stacks were requested."""
    return [("stacks_ignored", "--stacks was left out: not supported with --collector nsys")] * requested
