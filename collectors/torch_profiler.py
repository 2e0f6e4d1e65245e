"""Collector of torch.profiler: starts the measured process, follows it, and never leaves it behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tracekit import errors
from tracekit.collecting import Recording, Request
from tracekit.errors import CollectionError, TracekitError
from tracekit.ingest import Sample
from tracekit.meta import Timings

from .children import child, last_line

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.collecting import Progress

_COMMAND = (sys.executable, "-P", "-m", "tracekit.collectors.torch_child")


class TorchProfilerCollector:
    """Records a built-in workload with torch.profiler in a fresh process."""

    name = "torch"

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.collecting.Collector.record`."""
        log = directory / "stderr.txt"
        pipe = subprocess.PIPE
        with (
            log.open("wb") as errors_to,
            child(_COMMAND, stdin=pipe, stdout=pipe, stderr=errors_to) as process,
        ):
            result = _follow(process, request, directory, progress)
            code = process.wait()
        if result is None or result["event"] != "result":
            raise _failure(request, result, code, log)
        return _recording(result, directory)


def _follow(
    process: subprocess.Popen[str], request: Request, directory: Path, progress: Progress
) -> dict[str, Any] | None:
    """Send the request and read events until the process is done; returns its last word."""
    assert process.stdin  # noqa: S101 (a pipe)
    assert process.stdout  # noqa: S101 (a pipe)
    with suppress(BrokenPipeError):  # it died at once: its exit code and log say why
        process.stdin.write(json.dumps({"request": asdict(request), "directory": str(directory)}))
        process.stdin.close()
    last = None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "progress":
            progress(event["part"], event["done"], event["total"])
        else:
            last = event
    return last


def _failure(request: Request, last: dict[str, Any] | None, code: int, log: Path) -> TracekitError:
    if last is not None:
        kind: type[TracekitError] = getattr(errors, last["kind"], CollectionError)
        return kind(last["message"], hint=last["hint"])
    if code < 0:
        name = signal.Signals(-code).name
        return CollectionError(
            f"the process running {request.workload} was killed by {name}",
            hint="if memory ran out, lower --batch-size or --resolution"
            if code == -signal.SIGKILL
            else "see `tracekit doctor`",
        )
    return CollectionError(
        f"{request.workload} failed with exit code {code}: {last_line(log.read_text(errors='replace'))}",
        hint="try other options, or see `tracekit doctor`",
    )


def _recording(result: dict[str, Any], directory: Path) -> Recording:
    return Recording(
        traces=(directory / result["trace"],),
        device=result["device"],
        threads=result["threads"],
        version=result["version"],
        timings=Timings(result["step_ns"], result["warmup_ns"], result["clock"]),
        samples=tuple(Sample(**sample) for sample in result["samples"]),
        environment=result["environment"],
        options=result["options"],
    )
