"""Work in a child process with limits of time and memory that hold whatever the work does.

A database can be asked to stop, but does not hear it inside of one long function, and counts only the memory
that it manages. The child has a limit on its data (`RLIMIT_DATA`) and is killed when its time is over. It
ends with its parent, and its temporary files are deleted.
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
from pathlib import Path
from threading import Event, Thread, Timer
from typing import IO, Any, Final

import psutil

from tracekit.errors import ExitCode, TracekitError, UnusableInputError

GRACE_S = 0.5
"""Time that the child has to end by itself after its time is over, in seconds."""
FACTOR = 1.5
"""Resident memory of the child at most, in units of the limit that the work is asked to keep."""
LEAST_MARGIN = 64 << 20
"""Data beyond that limit that the child may have at least: stacks of its threads, rows that it formats."""
MOST_BYTES = 4 << 30
"""Memory of a query that has no limit of its own, at most; and at most half of the machine's."""
TOO_LONG = "simplify the query, or run `tracekit query` with a longer --timeout"
TOO_MUCH = "ask for less, or run `tracekit query` with more --memory"
_QUERY: Final = "from tracekit.render.query import answer; answer()"
"""What the process of a query executes."""
_READY, _TEXT, _ERROR, _SYSTEM = "ready", "text", "error", "system"


def usual_memory() -> int:
    """Return the bytes of a query that has no limit of its own."""
    return min(psutil.virtual_memory().total // 2, MOST_BYTES)


def took_too_long(seconds: float) -> UnusableInputError:
    """Return the error of a query that exceeded its time."""
    return UnusableInputError(f"the query took longer than {seconds:g} s", hint=TOO_LONG)


def query(
    sql: str,
    *,
    store: str | None,
    references: Sequence[str] = (),
    every: bool = False,
    limit: int | None = None,
    output_format: str,
    seconds: float,
    memory_bytes: int,
    most_bytes: int = 0,
    started: Callable[[Callable[[], None]], None] | None = None,
) -> Generator[str, None, None]:
    """Yield the answer to a query in pieces; the command line and the dashboard query by this function.

    Args:
        sql: What the user wrote.
        store: Address of the store; None for the usual one.
        references: References to the runs; none for the latest.
        every: Whether to query all runs of the store instead.
        limit: Maximum rows, 0 for all; None for the usual number of the format.
        output_format: As in `tracekit.render.query.pieces`.
        seconds: As in `pieces`.
        memory_bytes: As in `pieces`.
        most_bytes: As in `pieces`.
        started: As in `pieces`.

    Raises:
        TracekitError: The statement is refused or fails, or exceeds a limit.
    """
    request = {
        "sql": sql,
        "references": list(references),
        "every": every,
        "limit": limit,
        "seconds": seconds,
        "memory_bytes": memory_bytes,
        "output_format": output_format,
        "store": store,
    }
    limits: dict[str, Any] = {"seconds": seconds, "memory_bytes": memory_bytes, "most_bytes": most_bytes}
    yield from pieces(_QUERY, request, **limits, started=started)


def pieces(
    code: str,
    request: dict[str, Any],
    *,
    seconds: float,
    memory_bytes: int,
    most_bytes: int = 0,
    started: Callable[[Callable[[], None]], None] | None = None,
) -> Generator[str, None, None]:
    """Yield the texts that a child process makes; closing the generator ends the process.

    Args:
        code: Python code that the child executes; it calls `serve`.
        request: What `serve` passes on, as JSON.
        seconds: Time after the child has started until it is killed; 0 for no limit.
        memory_bytes: Memory that the work is asked to keep; the child has 1.5 times as much at most, or
            64 MiB more beyond what an idle one has.
        most_bytes: Bytes of all texts at most, as the child sends them; 0 for no limit.
        started: Called with a function that kills the child, which any thread may call.

    Raises:
        TracekitError: The error of the work; or it took too long, said too much, or ended the process.
    """
    with tempfile.TemporaryDirectory(prefix="tracekit-query-") as scratch:
        said, expired = Path(scratch) / "stderr", Event()
        with said.open("wb") as errors, _child(code, scratch, errors) as child:
            timer = Timer(seconds + GRACE_S, _expire, (child, expired))
            try:
                if started:
                    started(child.kill)
                _send(child, {"request": request, "memory_bytes": memory_bytes})
                yield from _received(child, timer if seconds else None, most_bytes)
                ended = child.wait()
            finally:
                timer.cancel()
                child.kill()
        if ended and expired.is_set():
            raise took_too_long(seconds)
        if ended:
            raise _ended(ended, said.read_text(errors="replace"))


def _expire(child: subprocess.Popen[bytes], expired: Event) -> None:
    expired.set()
    child.kill()


def _child(code: str, scratch: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
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
        with suppress(BrokenPipeError):  # it failed to start, which its exit code tells
            child.stdin.write(json.dumps(content).encode() + b"\n")
            child.stdin.flush()


def _received(child: subprocess.Popen[bytes], timer: Timer | None, most_bytes: int) -> Iterator[str]:
    left = most_bytes
    while child.stdout and (line := child.stdout.readline(left + 1 if most_bytes else -1)):
        left -= len(line)
        if most_bytes and left < 0:
            raise UnusableInputError(
                f"the result is larger than {most_bytes >> 20} MiB", hint="select fewer rows or columns"
            )
        if not line.endswith(b"\n"):
            return  # it was killed while it wrote
        kind, content = json.loads(line)
        if kind == _READY and timer:
            timer.start()
        elif kind == _TEXT:
            yield content
        elif kind == _ERROR:
            raise _error(*content)
        elif kind == _SYSTEM:
            raise OSError(*content)


def _error(message: str, hint: str, exit_code: int) -> TracekitError:
    error = TracekitError(message, hint=hint)
    error.exit_code = ExitCode(exit_code)
    return error


def _ended(code: int, said: str) -> Exception:
    if code < 0:
        name = signal.Signals(-code).name
        return UnusableInputError(
            f"the process of the query was ended by {name}: it needs more memory, or is nested too deeply",
            hint="simplify the query, or run `tracekit query` with more --memory",
        )
    return RuntimeError(f"the process of the query failed with exit code {code}:\n{said}")


def serve(work: Callable[[dict[str, Any]], Iterable[str]]) -> None:
    """Answer the request of the parent process: send the texts of `work`, or its error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    given = json.loads(sys.stdin.readline())
    Thread(target=_end_with_parent, daemon=True).start()
    _limit(given["memory_bytes"])
    _say(_READY, None)
    try:
        for text in work(given["request"]):
            _say(_TEXT, text)
    except TracekitError as error:
        _say(_ERROR, [error.message, error.hint, int(error.exit_code)])
    except MemoryError:
        _say(_ERROR, ["the query exceeds its memory limit", TOO_MUCH, int(ExitCode.UNUSABLE)])
    except OSError as error:
        _say(_SYSTEM, [error.errno, error.strerror, error.filename and str(error.filename)])
    except Exception:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # whatever its threads still do


def _say(kind: str, content: Any) -> None:
    sys.stdout.write(json.dumps([kind, content]) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    while os.read(0, 1 << 16):
        pass
    os._exit(1)


def _limit(memory_bytes: int) -> None:
    """Limit the data of this process; resident memory is at most that, and what it has by now."""
    resident = psutil.Process().memory_info().rss
    more = max(round(FACTOR * memory_bytes) - resident, memory_bytes + LEAST_MARGIN)
    with suppress(OSError, ValueError, StopIteration):  # elsewhere than on Linux
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = _data_bytes() + more
        resource.setrlimit(resource.RLIMIT_DATA, (min(wanted, hard) if hard >= 0 else wanted, hard))


def _data_bytes() -> int:
    """Return what the system counts as data of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
