"""Where a trace's bytes come from: a plain or gzipped file, or standard input, told apart by content."""

from __future__ import annotations

import sys
import zlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

from tracekit.errors import UnusableInputError
from tracekit.ingest.kineto.blocks import inflate
from tracekit.ingest.pool import cores
from tracekit.places import STDIN

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

    from tracekit.places import Place

_GZIP = b"\x1f\x8b"
_GZIP_FORMAT = 31  # zlib's window size for a gzip header and trailer
_BLOCK = 1 << 16
"""Compressed bytes read at a time: what is left of them is copied for every member, and 20 bytes make one."""
_STEP = 1 << 12
MOST_INFLATED = 300
"""Times its own size that a trace may inflate to; recorded ones reach about 50."""
_HARMLESS = 64 << 20  # bytes of text below which nobody is hurt
_FOREIGN = {
    b"SQLite format 3\0": "an SQLite database (an Nsight Systems export?)",
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


@contextmanager
def open_trace(path: Place) -> Iterator[Stream]:
    """Open a trace for reading, inflated if gzipped.

    Raises:
        UnusableInputError: Not there, not readable, or a format this reader does not know.
    """
    try:
        raw = sys.stdin.buffer if path == STDIN else path.open("rb")
    except OSError as error:
        raise UnusableInputError(f"{path}: {error.strerror or error}", hint="check the path") from error
    try:
        yield _recognise(path, cast("io.BufferedReader", raw))
    finally:
        if path != STDIN:
            raw.close()


class Stream:
    """The trace's JSON text, as far as it can be read.

    Attributes:
        damage: Why reading ended early; empty when it did not.
    """

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw = raw
        self.damage = ""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty only at the end."""
        return self._raw.read(size)

    def readinto(self, room: memoryview) -> int:
        """Read as much as there is room for; returns how much that was, 0 only at the end."""
        return self._raw.readinto(room)

    def position(self) -> int:
        """Bytes of the file consumed so far, for progress; 0 where the source cannot tell."""
        try:
            return self._raw.tell()
        except (OSError, ValueError):
            return 0


class GzipStream(Stream):
    """Inflates as it reads; what stands before a damaged place is still given out."""

    def __init__(self, path: Place, raw: io.BufferedReader) -> None:
        super().__init__(raw)
        self._path = path
        self._member = isal_zlib.decompressobj(wbits=_GZIP_FORMAT)
        self._blocks = inflate(raw, cores()) if raw.seekable() else iter(())
        self._ready = memoryview(b"")  # text of blocks that is not given out yet
        self._inside = False  # a member has begun and not ended
        self._waiting = b""
        self._given = self._taken = 0

    def read(self, size: int) -> bytes:
        """About `size` bytes of the inflated text; empty only at the end or where the data is damaged.

        Raises:
            UnusableInputError: So much text comes out of so few bytes that it is no trace.
        """
        pieces: list[bytes] = []
        while size > 0 and (piece := self._some(size)):
            pieces.append(piece)
            size -= len(piece)
            self._given += len(piece)
        if self._given > max(_HARMLESS, MOST_INFLATED * self._taken):
            raise UnusableInputError(
                f"{title(self._path)} decompresses to over {MOST_INFLATED} times its size, unlike any trace",
                hint="if it is a trace, decompress it and import the result",
            )
        return b"".join(pieces)

    def readinto(self, room: memoryview) -> int:
        """Inflate as much as there is room for; returns how much that was, 0 only at the end."""
        piece = self.read(len(room))
        room[: len(piece)] = piece
        return len(piece)

    def _some(self, limit: int) -> bytes:
        """Some more text; empty at the end."""
        while not self._ready and (inflated := next(self._blocks, None)):
            self._ready, self._taken = memoryview(inflated.text), self._taken + inflated.taken
        if self._ready:
            given, self._ready = bytes(self._ready[:limit]), self._ready[limit:]
            return given
        while not self.damage:
            self._waiting = self._waiting or self._more()
            if not self._inside:
                self._waiting = self._waiting.lstrip(b"\0")
                if not self._waiting.startswith(_GZIP[:1]):
                    break  # nothing, or padding behind the last member
            at_end = not self._waiting
            piece = self._inflate(limit)
            if piece:
                return piece
            if at_end and self._inside:
                self.damage = "the compressed data ends early"
        return b""

    def _more(self) -> bytes:
        block = self._raw.read(_BLOCK)
        self._taken += len(block)
        return block

    def _inflate(self, limit: int) -> bytes:
        try:
            piece: bytes = self._member.decompress(self._waiting, limit)
        except IsalError as error:  # type: ignore[misc]  # its stub forgets that it is one
            self.damage = f"the compressed data is damaged: {error}"
            return self._up_to_damage()
        self._inside = not self._member.eof
        self._waiting = self._member.unconsumed_tail
        if self._member.eof:  # another member may follow
            self._waiting = self._member.unused_data
            self._member = isal_zlib.decompressobj(wbits=_GZIP_FORMAT)
        return piece

    def _up_to_damage(self) -> bytes:
        """What the failing call had inflated before the damage, found by starting again."""
        if not self._raw.seekable():
            return b""
        self._raw.seek(0)
        member, seen, found = zlib.decompressobj(_GZIP_FORMAT), 0, bytearray()
        while block := member.unused_data or self._raw.read(_STEP):
            member = zlib.decompressobj(_GZIP_FORMAT) if member.eof else member
            before = member.copy()
            try:
                piece, damaged = member.decompress(block), False
            except zlib.error:
                piece, damaged = _bytewise(before, block), True
            found += piece[max(0, self._given - seen) :]
            seen += len(piece)
            if damaged:
                break
        return bytes(found)


def _bytewise(member: zlib._Decompress, block: bytes) -> bytes:
    """Everything a block inflates to before its damage."""
    found = bytearray()
    with suppress(zlib.error):
        for place in range(len(block)):
            found += member.decompress(block[place : place + 1])
    return bytes(found)


def _recognise(path: Place, raw: io.BufferedReader) -> Stream:
    head = _peek(raw)
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            raise UnusableInputError(
                f"{title(path)} is {name}, not a Kineto trace",
                hint="give JSON or gzipped JSON from torch.profiler",
            )
    if not head:
        raise UnusableInputError(f"{title(path)} is empty", hint="record the trace again")
    return GzipStream(path, raw) if head.startswith(_GZIP) else Stream(raw)


def _peek(stream: io.BufferedReader) -> bytes:
    try:
        return stream.peek(16)[:16]
    except IsADirectoryError as error:
        raise UnusableInputError(f"{error.filename} is a folder", hint="give a trace in it") from error


def title(path: Place) -> str:
    """How messages call an input."""
    return "standard input" if path == STDIN else str(path)
