"""Where a trace's bytes come from: a plain or gzipped file, or standard input, told apart by content."""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from isal import igzip

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

STDIN = Path("-")
_GZIP = b"\x1f\x8b"
_FOREIGN = {
    b"SQLite format 3\0": "an SQLite database (an Nsight Systems export?)",
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


@contextmanager
def open_trace(path: Path) -> Iterator[Stream]:
    """Open a trace for reading, inflated if gzipped.

    Raises:
        UnusableInputError: Not there, not readable, or a format this reader does not know.
    """
    try:
        raw = sys.stdin.buffer if path == STDIN else path.open("rb", buffering=0)
    except OSError as error:
        raise UnusableInputError(f"{path}: {error.strerror}", hint="check the path") from error
    try:
        yield _recognise(path, cast("IO[bytes]", raw))
    finally:
        if path != STDIN:
            raw.close()


class Stream:
    """The trace's JSON text as a stream that survives a damaged gzip member.

    Attributes:
        damage: Why reading ended early; empty when it did not.
    """

    def __init__(self, stream: IO[bytes], raw: IO[bytes]) -> None:
        self._stream = stream
        self._raw = raw
        self.damage = ""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty at the end or where the compressed data is damaged."""
        if self.damage:
            return b""
        try:
            return self._stream.read(size)
        except (EOFError, OSError, igzip.BadGzipFile) as error:
            self.damage = f"compressed data ends early or is damaged: {error}"
            return b""

    def position(self) -> int:
        """Bytes of the file consumed so far, for progress; 0 where the source cannot tell."""
        try:
            return self._raw.tell()
        except (OSError, ValueError):
            return 0


def _recognise(path: Path, raw: IO[bytes]) -> Stream:
    buffered = io.BufferedReader(cast("io.RawIOBase", raw), buffer_size=1 << 20) if path != STDIN else raw
    head = _peek(cast("io.BufferedReader", buffered))
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            raise UnusableInputError(
                f"{path} is {name}, not a Kineto trace", hint="give JSON or gzipped JSON from torch.profiler"
            )
    if not head:
        raise UnusableInputError(f"{path} is empty", hint="record the trace again")
    if head.startswith(_GZIP):
        inflated = igzip.GzipFile(fileobj=buffered, mode="rb")  # type: ignore[no-untyped-call]
        return Stream(cast("IO[bytes]", inflated), raw)
    return Stream(buffered, raw)


def _peek(stream: io.BufferedReader) -> bytes:
    try:
        return stream.peek(16)[:16]
    except IsADirectoryError as error:
        raise UnusableInputError(f"{error.filename} is a folder", hint="name the trace in it") from error
