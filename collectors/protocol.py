"""What a collector and the process that it measures tell each other: a request, then lines of JSON.

An event is `progress`, with the part that runs and how far it is, or the last word: `result` or `error`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

from tracekit import errors
from tracekit.errors import CollectionError, TracekitError
from tracekit.ingest.write import Sample
from tracekit.runs.meta import Timings

from .children import child, last_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tracekit.recording.collector import Progress, Request

MEASURE, PROFILE = "measure", "profile"
"""Parts of a recording's progress: the timed steps, and the profiled ones after them."""


@dataclass(frozen=True)
class Reporter:
    """Writes one JSON object per line to the collector."""

    stream: TextIO

    def tell(self, event: str, **content: Any) -> None:
        """Send one event."""
        self.stream.write(json.dumps({"event": event, **content}) + "\n")
        self.stream.flush()

    def steps(self, part: str, total: int, run: Callable[[], None]) -> None:
        """Run a step `total` times, telling how many are done."""
        self.tell("progress", part=part, done=0, total=total)
        for done in range(1, total + 1):
            run()
            self.tell("progress", part=part, done=done, total=total)


def asked() -> tuple[Reporter, dict[str, Any]]:
    """In the measured process: where it tells, which was its standard output, and what it is asked."""
    reporter = Reporter(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # a library that prints must not reach the parent's protocol
    content: dict[str, Any] = json.load(sys.stdin)
    return reporter, content


def serve(reporter: Reporter, record: Callable[[], dict[str, Any]]) -> int:
    """Tell what `record` returns, or the expected error it raises; returns the exit code."""
    try:
        reporter.tell("result", **record())
    except TracekitError as error:
        reporter.tell("error", kind=type(error).__name__, message=error.message, hint=error.hint)
        return int(error.exit_code)
    return 0


def converse(
    command: Sequence[str],
    request: Request,
    directory: Path,
    progress: Progress,
    *,
    beside: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> dict[str, Any]:
    """Run a process that takes a request on standard input and tells its events on standard output.

    Args:
        command: The process.
        request: What it is to run.
        directory: Where it may write; its log goes there too.
        progress: Told what it tells.
        beside: What goes on as long as it runs, by the id of the guard it is below.

    Raises:
        TracekitError: What it told, or how it ended.
    """
    log, pipe = directory / "stderr.txt", subprocess.PIPE
    with (
        log.open("wb") as errors_to,
        child(command, stdin=pipe, stdout=pipe, stderr=errors_to) as process,
        beside(process.pid),
    ):
        assert process.stdin  # noqa: S101 (a pipe)
        assert process.stdout  # noqa: S101 (a pipe)
        with suppress(BrokenPipeError):  # it died at once: its exit code and log say why
            process.stdin.write(json.dumps({"request": asdict(request), "directory": str(directory)}))
            process.stdin.close()
        last = follow(process.stdout, progress)
        code = process.wait()
    return result(last, name=request.workload, code=code, log=log.read_text(errors="replace"))


def follow(lines: Iterable[str], progress: Progress) -> dict[str, Any] | None:
    """Read events until there are no more; returns the last word, None when the process had none."""
    last = None
    for line in lines:
        event = json.loads(line)
        if event["event"] == "progress":
            progress(event["part"], event["done"], event["total"])
        else:
            last = event
    return last


def result(last: dict[str, Any] | None, *, name: str, code: int, log: str) -> dict[str, Any]:
    """The result a process told.

    Args:
        last: Its last word.
        name: What it ran.
        code: How it ended, as `subprocess.Popen.returncode` says it.
        log: What it printed.

    Raises:
        TracekitError: It told an error, or ended without a word.
    """
    if last is None:
        raise _wordless(name, code, log)
    if last["event"] == "error":
        kind: type[TracekitError] = getattr(errors, last["kind"], CollectionError)
        raise kind(last["message"], hint=last["hint"])
    return last


def timings(told: dict[str, Any]) -> Timings:
    """The step times in a result."""
    return Timings(told["step_ns"], told["warmup_ns"], told["clock"])


def samples(told: dict[str, Any]) -> tuple[Sample, ...]:
    """The samples in a result."""
    return tuple(Sample(**sample) for sample in told["samples"])


def _wordless(name: str, code: int, log: str) -> CollectionError:
    if code < 0:
        killed = code == -signal.SIGKILL
        return CollectionError(
            f"the process running {name} was killed by {signal.Signals(-code).name}",
            hint="if it ran out of memory, lower --batch-size or --resolution"
            if killed
            else "see `tracekit doctor`",
        )
    return CollectionError(
        f"{name} failed with exit code {code}: {last_line(log)}",
        hint="try other options, or see `tracekit doctor`",
    )
