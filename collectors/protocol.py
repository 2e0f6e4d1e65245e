"""Protocol between a collector and the process it measures: a request, answered by events as lines of JSON.

An event is `progress`, or one of the final events `result` and `error`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TextIO

from tracekit import errors
from tracekit.errors import CollectionError, TracekitError
from tracekit.ingest.write import Sample
from tracekit.recording.collector import Progress, Recording, Request, read_cpu_load
from tracekit.recording.logs import LOG, error_line
from tracekit.runs.meta import Diagnostic, Level, Timings

from .children import child
from .compilation import artifact_environment

MEASURE, PROFILE = "measure", "profile"
"""Parts of the progress: timed steps, then profiled steps."""
_INTERVAL_NS = 50_000_000
"""Shortest interval of progress: sending it takes the host longer than launching a kernel."""


@dataclass(frozen=True)
class Reporter:
    """Sends events to the collector, one JSON object per line."""

    stream: TextIO

    def send(self, event: str, **content: Any) -> None:
        """Send one event."""
        self.stream.write(json.dumps({"event": event, **content}) + "\n")
        self.stream.flush()

    def steps(self, part: str, total: int, run: Callable[[], None]) -> None:
        """Run steps and send the progress, not after each of many short ones.

        Args:
            part: Part of the progress.
            total: Number of steps.
            run: Runs one step.
        """
        self.send("progress", part=part, done=0, total=total)
        due = perf_counter_ns()
        for done in range(1, total + 1):
            run()
            if (now := perf_counter_ns()) >= due or done == total:
                due = now + _INTERVAL_NS
                self.send("progress", part=part, done=done, total=total)


def serve_request(record: Callable[[Request, Path, Reporter], dict[str, Any]]) -> int:
    """Serve the request on standard input, with events on the original standard output.

    Args:
        record: Returns the result of a request, with files in a folder.

    Returns:
        The exit code.
    """
    request, directory, reporter = receive_request()
    return serve(reporter, lambda: record(request, directory, reporter))


def receive_request() -> tuple[Request, Path, Reporter]:
    """Return the request on standard input, its folder, and a reporter to the original standard output."""
    reporter = Reporter(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # output of libraries must not mix with events
    content = json.load(sys.stdin)
    return Request(**content["request"]), Path(content["directory"]), reporter


def serve(reporter: Reporter, record: Callable[[], dict[str, Any]]) -> int:
    """Send the result of `record`, or the `TracekitError` it raises; returns the exit code.

    The cause of the error goes to the log.
    """
    try:
        reporter.send("result", **record())
    except TracekitError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        reporter.send("error", kind=type(error).__name__, message=error.message, hint=error.hint)
        return int(error.exit_code)
    return 0


def run_process(
    command: Sequence[str],
    request: Request,
    directory: Path,
    progress: Progress,
    *,
    while_running: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> dict[str, Any]:
    """Run a process that reads a request from standard input and writes events to standard output.

    Args:
        command: Command of the process.
        request: Workload to run.
        directory: Folder for its files and its log.
        progress: Called with the progress.
        while_running: Makes a context that is open while it runs, from the id of its guard.

    Returns:
        The final event.

    Raises:
        TracekitError: The error it sent, or a CollectionError if it ended without a final event.
    """
    log, pipe = directory / LOG, subprocess.PIPE
    with (
        log.open("wb") as errors_to,
        child(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=errors_to,
            environment=artifact_environment(request, directory, os.environ),
        ) as process,
        while_running(process.pid),
    ):
        assert process.stdin  # noqa: S101 (a pipe)
        assert process.stdout  # noqa: S101 (a pipe)
        with suppress(BrokenPipeError):  # it has exited: its exit code and log say why
            process.stdin.write(json.dumps({"request": asdict(request), "directory": str(directory)}))
            process.stdin.close()
        event = follow(process.stdout, progress)
        code = process.wait()
    return result_of(event, name=request.workload, code=code, log=log.read_text(errors="replace"))


def follow(lines: Iterable[str], progress: Progress) -> dict[str, Any] | None:
    """Read all events; returns the final one, or None if there is none."""
    final = None
    for line in lines:
        event = json.loads(line)
        if event["event"] == "progress":
            progress(event["part"], event["done"], event["total"])
        else:
            final = event
    return final


def result_of(final: dict[str, Any] | None, *, name: str, code: int, log: str) -> dict[str, Any]:
    """Return the final event of a process if it is a result.

    Args:
        final: Final event.
        name: Name of the workload.
        code: `subprocess.Popen.returncode`.
        log: Output of the process.

    Raises:
        TracekitError: The final event is an error, or missing.
    """
    if final is None:
        raise _no_final_event(name, code, log)
    if final["event"] == "error":
        kind: type[TracekitError] = getattr(errors, final["kind"], CollectionError)
        raise kind(final["message"], hint=final["hint"])
    return final


def read_result(result: dict[str, Any], *, version: str, options: dict[str, Any]) -> Recording:
    """Return the recording of a workload, without traces, from the result of its process.

    Args:
        result: The result, which may be of steps without a profiler.
        version: Version of the profiler.
        options: Options of the profiler.
    """
    steps = result["step_ns"]  # empty if none could be timed
    return Recording(
        traces=(),
        device=result["device"],
        threads=result["threads"],
        version=version,
        timings=Timings(steps, result["warmup_ns"], result["clock"]) if steps else None,
        cpu_loads=read_cpu_load(result),
        compilation=result.get("compilation"),
        batch_size=result["batch_size"],
        samples=samples(result),
        environment=result["environment"],
        options=options,
        diagnostics=tuple(Diagnostic(Level.WARN, code, text) for code, text in result.get("notes", ())),
    )


def samples(result: dict[str, Any]) -> tuple[Sample, ...]:
    """Return the samples in a result."""
    return tuple(Sample(**sample) for sample in result["samples"])


def _no_final_event(name: str, code: int, log: str) -> CollectionError:
    if code == -signal.SIGKILL:
        message = f"the process running {name} was killed by SIGKILL"
        return CollectionError(message, hint="if it ran out of memory, lower --batch-size or --resolution")
    if code < 0:
        reason = f": {error_line(log)}" if log.strip() else ""
        message = f"the process running {name} was killed by {signal.Signals(-code).name}{reason}"
        return CollectionError(message, hint="see `tracekit doctor`")
    message = f"{name} failed with exit code {code}: {error_line(log)}"
    return CollectionError(message, hint="try other options, or see `tracekit doctor`")
