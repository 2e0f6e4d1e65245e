"""Runs tracekit in a process that notes each file operation, and may be killed at one of them.

    python killed_child.py NOTES NUMBER DECODER ARGUMENTS...
    python killed_child.py serve

The second form imports tracekit once and forks a process for each line of JSON on standard input, a list of
the arguments of the first form with the file for its errors in front. It answers with the id of the process,
and once that has ended with its exit code, negative for a signal, a line each.

NOTES is a file of `ROOM` bytes in which the number and name of the last operation stand. At operation NUMBER
the process gets SIGKILL; 0 is never. From operation -NUMBER on, where that is negative, nothing can be
created or written, as on a full disk. DECODER is `plain`, or `pool` for an import with worker processes in
many small chunks.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import signal
import sys
import threading
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

ROOM = 256
NAMES = {
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "shutil.rmtree",
    "shutil.copyfile",
    "fcntl.flock",
    "subprocess.Popen",
    "tests.parquet",
}
FILLS = {"open", "os.mkdir", "shutil.copyfile", "tests.parquet"}
"""Operations that need room."""
LATE = (
    "llvmlite.binding",
    "pyarrow.parquet",
    "tracekit.cli.collect",
    "tracekit.cli.import_",
    "tracekit.collectors.program",
    "tracekit.collectors.torch_profiler",
    "tracekit.ingest.importer.trace_writer",
    "tracekit.ingest.kineto.reader",
    "tracekit.ingest.kineto.scan.native",
    "tracekit.ingest.nsys.reader",
    "tracekit.ingest.write",
)
"""What tracekit imports only when it needs it."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Noted:
    """Counts operations on files, writes each down, and ends the process at one of them."""

    def __init__(self, notes: Path, last: int) -> None:
        self._file = notes.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), ROOM)
        self._last, self._count, self._lock = last, 0, threading.Lock()

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "open":
            path, _, flags = arguments
            if not isinstance(path, (str, bytes, os.PathLike)) or not flags & WRITES or path == os.devnull:
                return
        elif name not in NAMES:
            return
        first = arguments[0] if arguments else ""
        what = " ".join(map(str, first[:4])) if isinstance(first, (list, tuple)) else str(first)
        with self._lock:
            self._count += 1
            reported = f"{self._count} {name} {what}".encode(errors="replace")[: ROOM - 1]
            self._map[:] = reported.ljust(ROOM, b"\0")
            full = 0 < -self._last <= self._count
            if self._count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
        if full and name in FILLS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)


def audit_parquet() -> None:
    """Have files that Arrow writes without Python's knowledge be operations too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    os_file = pa.OSFile

    def opened(path: str, *arguments: Any, **options: Any) -> Any:
        sys.audit("tests.parquet", f"park {path}")
        return os_file(path, *arguments, **options)

    pa.OSFile = opened
    for name in ("__init__", "write_table", "close"):
        setattr(pq.ParquetWriter, name, _told(getattr(pq.ParquetWriter, name), name))


def _told(method: Any, name: str) -> Any:
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        where = arguments[0] if name == "__init__" else ""
        if name != "close" or not self.__dict__.setdefault("closed", False):  # as Arrow closes: once
            self.closed = name == "close"
            sys.audit("tests.parquet", f"{name.strip('_')} {where}")
        return method(self, *arguments, **options)

    return call


def with_workers() -> None:
    """Make a small trace be decoded by worker processes, in many chunks."""
    from tracekit.ingest.importer import local
    from tracekit.ingest.kineto import reader
    from tracekit.ingest.kineto.scan.loader import Scanners

    local.POOL_BYTES = local.THREAD_BYTES = 1
    local.cores = lambda: 2
    local.scanners = lambda size: nullcontext(Scanners())
    reader.read.__kwdefaults__["chunk_bytes"] = 200_000


def run(notes: str, last: str, decoder: str, *arguments: str) -> None:
    """Run tracekit with these arguments; ends the process."""
    from tracekit.cli.main import main as tracekit

    audit_parquet()
    if decoder == "pool":
        with_workers()
    sys.addaudithook(Noted(Path(notes), int(last)))
    tracekit(list(arguments))


def requested() -> list[str]:
    """Fork for each request; returns in the new process, with the arguments of `run`."""
    for line in sys.stdin:
        errors, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            streams = (os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
            for number, stream in enumerate((*streams, os.open(errors, os.O_WRONLY | os.O_TRUNC))):
                os.dup2(stream, number)
                os.close(stream)
            return arguments
        _answer(pid)
        _, status = os.waitpid(pid, 0)
        _answer(os.waitstatus_to_exitcode(status))
    sys.exit()


def _answer(number: int) -> None:
    os.write(1, f"{number}\n".encode())


def imported() -> None:
    """Import what an import and a collection import late: a forked process has it then."""
    for name in LATE:
        with suppress(ImportError):
            import_module(name)


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["serve"]:
        imported()
        arguments = requested()
    run(*arguments)


if __name__ == "__main__":
    main()
