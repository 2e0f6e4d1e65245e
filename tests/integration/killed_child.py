"""Runs tracekit in a process that notes each file operation, and may be killed at one of them.

    python killed_child.py NOTES NUMBER DECODER ARGUMENTS...

NOTES is a file of `ROOM` bytes in which the number and name of the last operation stand. At operation NUMBER
the process gets SIGKILL; 0 is never. From operation -NUMBER on, where that is negative, nothing can be
created or written, as on a full disk. DECODER is `plain`, or `pool` for an import with worker processes in
many small chunks.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import sys
import threading
from contextlib import nullcontext
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
            told = f"{self._count} {name} {what}".encode(errors="replace")[: ROOM - 1]
            self._map[:] = told.ljust(ROOM, b"\0")
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
    from tracekit.ingest import importer
    from tracekit.ingest.kineto import reader
    from tracekit.ingest.kineto.scan.ready import Scanners

    importer.POOL_BYTES = importer.THREAD_BYTES = 1
    importer.cores = lambda: 2
    importer.scanners = lambda size: nullcontext(Scanners())
    reader.read.__kwdefaults__["chunk_bytes"] = 200_000


def main() -> None:
    notes, last, decoder, *arguments = sys.argv[1:]
    from tracekit.cli.main import main as tracekit

    audit_parquet()
    if decoder == "pool":
        with_workers()
    sys.addaudithook(Noted(Path(notes), int(last)))
    tracekit(arguments)


if __name__ == "__main__":
    main()
