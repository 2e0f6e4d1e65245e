"""Collector of torch.profiler: starts the measured process, follows it, and never leaves it behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tracekit import errors
from tracekit.collecting import Recording, Request
from tracekit.errors import CollectionError, TracekitError
from tracekit.ingest import Sample
from tracekit.meta import Timings
from tracekit.nvml import QUESTIONS

from .sampling import INTERVAL_S, sampling
from .torch_child import MEASURE, PROFILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tracekit.collecting import Progress
    from tracekit.meta import Diagnostic

CHILD = "tracekit.collectors.torch_child"
GRACE_SECONDS = 2.0
_NOISE = re.compile(r"USDT:|\[?[WI]\d{4} |STAGE:|\s|$")
"""Lines of torch's own log, and the indented lines of a traceback."""


class TorchProfilerCollector:
    """Records a built-in workload with torch.profiler in a fresh process."""

    name = "torch"

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.collecting.Collector.record`."""
        log = directory / "stderr.txt"
        followed = _Followed(progress)
        # sampled from here: in the measured process a thread would wait for and hold Python's lock
        with log.open("wb") as errors_to, _child(errors_to) as child, sampling(pid=child.pid) as taken:
            result = _follow(child, request, directory, followed)
            code = child.wait()
        if result is None or result["event"] != "result":
            raise _failure(request, result, code, log)
        return _recording(result, directory, followed.only(taken.samples()), taken.diagnostics())


class _Followed:
    """Progress passed on, and when the timed steps began and the profiled ones ended."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._began_ns = self._ended_ns = 0

    def __call__(self, part: str, done: int, total: int) -> None:
        if part == MEASURE and not done:
            self._began_ns = time.time_ns()
        if part == PROFILE and done == total:
            self._ended_ns = time.time_ns()
        self._progress(part, done, total)

    def only(self, samples: Sequence[Sample]) -> tuple[Sample, ...]:
        """The samples of those steps, with what was said once before, and one reading more at the end."""
        last = self._ended_ns + round(2e9 * INTERVAL_S)
        constant = {name for one in QUESTIONS if one.once for name in one.names}
        return tuple(
            replace(one, t_unix_ns=max(one.t_unix_ns, self._began_ns)) if one.metric in constant else one
            for one in samples
            if one.metric in constant or self._began_ns <= one.t_unix_ns <= last
        )


@contextmanager
def _child(errors_to: Any) -> Iterator[subprocess.Popen[str]]:
    """The measured process in a session of its own, so that it ends with everything it started."""
    child = subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-P", "-m", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors_to,
        text=True,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        _end(child)


def _end(child: subprocess.Popen[str]) -> None:
    """Ask the process group to end, then make it; harmless when it already has."""
    if child.poll() is None:
        _signal(child, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
    _signal(child, signal.SIGKILL)
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream:
            with suppress(OSError):
                stream.close()


def _signal(child: subprocess.Popen[str], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _follow(
    child: subprocess.Popen[str], request: Request, directory: Path, progress: Progress
) -> dict[str, Any] | None:
    """Send the request and read events until the process is done; returns its last word."""
    assert child.stdin  # noqa: S101 (a pipe)
    assert child.stdout  # noqa: S101 (a pipe)
    with suppress(BrokenPipeError):  # it died at once: its exit code and log say why
        child.stdin.write(json.dumps({"request": asdict(request), "directory": str(directory)}))
        child.stdin.close()
    last = None
    for line in child.stdout:
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


def last_line(text: str) -> str:
    r"""The line of a log that says what went wrong.

    Example:
        >>> last_line("RuntimeError: no kernel\nUSDT:2026 profiler_stop\n")
        'RuntimeError: no kernel'
    """
    said = [line.strip() for line in text.splitlines() if not _NOISE.match(line)]
    return said[-1] if said else "it said nothing"


def _recording(
    result: dict[str, Any], directory: Path, samples: tuple[Sample, ...], said: tuple[Diagnostic, ...]
) -> Recording:
    return Recording(
        traces=(directory / result["trace"],),
        device=result["device"],
        threads=result["threads"],
        version=result["version"],
        timings=Timings(result["step_ns"], result["warmup_ns"], result["clock"]),
        samples=(*(Sample(**sample) for sample in result["samples"]), *samples),
        environment=result["environment"],
        options=result["options"],
        diagnostics=said,
    )
