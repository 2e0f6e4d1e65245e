"""Queries in a child process with limits of time and memory that hold whatever the statement does.

DuckDB's own limits do not suffice: `interrupt` is not heard inside one long function, such as
`list_sum(range(...))`, and `memory_limit` counts only DuckDB's own buffers, not lists and texts.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread, Timer
from typing import IO, Any, Final

import psutil

from tracekit.errors import ExitCode, TracekitError, UnusableInputError

GRACE_S = 0.5
"""Time that the child has to end by itself after its time is over, in seconds."""
FACTOR = 1.5
"""Maximum resident memory of the child, in units of the limit that the query is asked to keep."""
MIN_MARGIN = 64 << 20
"""Data beyond that limit that the child may always have, in bytes: thread stacks, rows that it formats."""
MAX_DEFAULT_MEMORY = 4 << 30
"""Maximum memory of a query without a limit of its own, in bytes; and at most half of the machine's."""
TOO_LONG = "simplify the query, or run `tracekit query` with a longer --timeout"
TOO_MUCH = "ask for less, or run `tracekit query` with more --memory"
_QUERY: Final = "from tracekit.render.query import answer; answer()"
_READY, _TEXT, _ERROR, _SYSTEM = "ready", "text", "error", "system"


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query and what it reads."""

    sql: str
    store: str | None  # address of the store; None for the default
    references: Sequence[str] = ()  # references to the runs; none for the latest
    all_runs: bool = False  # whether to query all runs of the store instead
    limit: int | None = None  # maximum rows, 0 for all; None for the default of the format
    output_format: str  # as in `tracekit.render.query.pieces`
    seconds: float  # time after the child has started until it is killed; 0 for no limit
    # memory that DuckDB keeps to; the child has 1.5 times as much at most, or 64 MiB more beyond what an idle
    # one has
    memory_bytes: int


def default_memory() -> int:
    """Return the memory limit of a query that has none of its own, in bytes."""
    return min(psutil.virtual_memory().total // 2, MAX_DEFAULT_MEMORY)


def time_error(seconds: float) -> UnusableInputError:
    """Return the error of a query that exceeded its time."""
    return UnusableInputError(f"the query took longer than {seconds:g} s", hint=TOO_LONG)


def run_query(
    query: Query,
    *,
    max_bytes: int = 0,
    started: Callable[[Callable[[], None]], None] | None = None,
    code: str = _QUERY,
) -> Generator[str, None, None]:
    """Yield the result of a query in pieces; closing the generator ends its process.

    The command line and the dashboard query by this function.

    Args:
        query: The query.
        max_bytes: Maximum bytes of all texts, as the child sends them; 0 for no limit.
        started: Called with a function that kills the child, which any thread may call.
        code: Python code that the child executes; it calls `serve`.

    Raises:
        TracekitError: The statement is refused or fails, or exceeds a limit.
    """
    seconds = query.seconds
    with tempfile.TemporaryDirectory(prefix="tracekit-query-") as scratch:
        log, expired = Path(scratch) / "stderr", Event()
        with log.open("wb") as errors, _start(code, scratch, errors) as child:
            timer = Timer(seconds + GRACE_S, _expire, (child, expired))
            try:
                if started:
                    started(child.kill)
                _send(child, asdict(query))
                yield from _receive(child, timer if seconds else None, max_bytes)
                code_of_child = child.wait()
            finally:
                timer.cancel()
                child.kill()
        if code_of_child and expired.is_set():
            raise time_error(seconds)
        if code_of_child:
            raise _exit_error(code_of_child, log.read_text(errors="replace"))


def _expire(child: subprocess.Popen[bytes], expired: Event) -> None:
    expired.set()
    child.kill()


def _start(code: str, scratch: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    columns = shutil.get_terminal_size((120, 40)).columns
    return subprocess.Popen(  # noqa: S603 (this interpreter, and code of tracekit's own)
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, "TMPDIR": scratch, "COLUMNS": str(columns)},
    )


def _send(child: subprocess.Popen[bytes], content: dict[str, Any]) -> None:
    """Send a line; the pipe stays open, since its end tells the child that its parent has ended."""
    if child.stdin:
        try:
            child.stdin.write(json.dumps(content).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:  # it failed to start or was killed, which its exit code tells
            with suppress(BrokenPipeError):  # it flushes the line once more
                child.stdin.close()


def _receive(child: subprocess.Popen[bytes], timer: Timer | None, max_bytes: int) -> Iterator[str]:
    left = max_bytes
    while child.stdout and (line := child.stdout.readline(left + 1 if max_bytes else -1)):
        left -= len(line)
        if max_bytes and left < 0:
            raise UnusableInputError(
                f"the result is larger than {max_bytes >> 20} MiB", hint="select fewer rows or columns"
            )
        if not line.endswith(b"\n"):
            return  # it was killed while it wrote
        kind, content = json.loads(line)
        if kind == _READY and timer:
            timer.start()
        elif kind == _TEXT:
            yield content
        elif kind == _ERROR:
            message, hint, exit_code = content
            error = TracekitError(message, hint=hint)
            error.exit_code = ExitCode(exit_code)
            raise error
        elif kind == _SYSTEM:
            raise OSError(*content)


def _exit_error(code: int, log: str) -> Exception:
    if code < 0:
        name = signal.Signals(-code).name
        return UnusableInputError(
            f"the process of the query was ended by {name}: it needs more memory, or is nested too deeply",
            hint="simplify the query, or run `tracekit query` with more --memory",
        )
    return RuntimeError(f"the process of the query failed with exit code {code}:\n{log}")


def serve(work: Callable[[Query], Iterable[str]]) -> None:
    """Answer the query of the parent process: send the texts of `work`, or its error."""
    # the parent decides; and DuckDB 2.0 with several threads may never leave Executor::CancelTasks after it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    query = Query(**json.loads(sys.stdin.readline()))
    Thread(target=_end_with_parent, daemon=True).start()
    _limit_memory(query.memory_bytes)
    _write(_READY, None)
    try:
        for text in work(query):
            _write(_TEXT, text)
    except TracekitError as error:
        _write(_ERROR, [error.message, error.hint, int(error.exit_code)])
    except MemoryError:
        _write(_ERROR, ["the query exceeds its memory limit", TOO_MUCH, int(ExitCode.UNUSABLE)])
    except OSError as error:
        _write(_SYSTEM, [error.errno, error.strerror, error.filename and str(error.filename)])
    except Exception:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # whatever its threads still do


def _write(kind: str, content: Any) -> None:
    sys.stdout.write(json.dumps([kind, content]) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    while os.read(0, 1 << 16):
        pass
    os._exit(1)


def _limit_memory(memory_bytes: int) -> None:
    """Limit the data of this process; resident memory is at most that, and what it has by now."""
    resident = psutil.Process().memory_info().rss
    more = max(round(FACTOR * memory_bytes) - resident, memory_bytes + MIN_MARGIN)
    with suppress(OSError, ValueError, StopIteration):  # elsewhere than on Linux
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))
        resource.setrlimit(resource.RLIMIT_DATA, (min(used + more, hard) if hard >= 0 else used + more, hard))
