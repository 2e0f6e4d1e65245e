"""Open traces, and inflate gzipped ones."""

from __future__ import annotations

import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

from tracekit.errors import UnusableInputError, printable
from tracekit.storage import STDIN, Kind, Place, kind

_GZIP_FORMAT = 31  # zlib's window size for a gzip header and trailer
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 16
"""Compressed bytes per read: the rest of them is copied for every member, which may have only 20 bytes."""
_STEP = 1 << 12
MAX_RATIO = 300
"""Limit of the compression ratio; recorded traces reach about 50."""
_HARMLESS = 64 << 20  # text without this limit
FOREIGN = {
    b"SQLite format 3\0": "an SQLite database (an Nsight Systems export?)",
    b"\x28\xb5\x2f\xfd": "zstd-compressed (decompress it with `zstd -d`)",
    b"\xfd7zXZ\0": "xz-compressed (decompress it with `xz -d`)",
    b"BZh": "bzip2-compressed (decompress it with `bzip2 -d`)",
    b"PK\x03\x04": "a zip archive (unpack it, and import the folder)",
    b"PAR1": "a Parquet file",
    b"\x80": "a pickle (a memory snapshot, or a dump of NCCL's flight recorder?)",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
"""Begins of files of other formats, and their names."""
NOT_A_TRACE = ", not a Kineto trace"
"""What follows the name of a format that is recognized."""


@contextmanager
def open_trace(path: Place) -> Iterator[Stream]:
    """Open a trace for reading, inflated if gzipped.

    Raises:
        UnusableInputError: The file does not exist, is not readable, or has an unknown format.
    """
    try:
        raw = sys.stdin.buffer if path == STDIN else path.open("rb")
    except OSError as error:
        raise UnusableInputError(f"{path}: {error.strerror or error}", hint="check the path") from error
    try:
        yield _recognize_format(path, cast("io.BufferedReader", raw))
    finally:
        if path != STDIN:
            raw.close()


class Stream:
    """The readable part of a trace's JSON text.

    Attributes:
        damage: Why reading ended early; empty if it did not.
        damaged_at: Bytes of the file before that, approximately.
        ignored: Bytes of the file after the text that are of no known format.
    """

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw = raw
        self.damage = ""
        self.damaged_at = 0
        self.ignored = 0

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; empty only at the end."""
        return self._raw.read(size)

    def readinto(self, room: memoryview) -> int:
        """Fill a buffer; return the number of bytes, 0 only at the end."""
        return self._raw.readinto(room)

    def position(self) -> int:
        """Return the bytes of the file read so far, for progress; 0 if unknown."""
        try:
            return self._raw.tell()
        except (OSError, ValueError):
            return 0


class GzipStream(Stream):
    """Stream of inflated text, up to a damaged place."""

    def __init__(self, path: Place, raw: io.BufferedReader) -> None:
        super().__init__(raw)
        self._path = path
        self._member = isal_zlib.decompressobj(wbits=_GZIP_FORMAT)
        self._inside = False  # inside a member
        self._waiting = b""
        self._given = self._taken = 0

    def read(self, size: int) -> bytes:
        """Return about `size` bytes of inflated text; empty only at the end or at damaged data.

        Raises:
            UnusableInputError: The compression ratio is too high for a trace.
        """
        pieces: list[bytes] = []
        while size > 0 and (piece := self._some(size)):
            pieces.append(piece)
            size -= len(piece)
            self._given += len(piece)
        if self._given > max(_HARMLESS, MAX_RATIO * self._taken):
            message = f"{title(self._path)} decompresses to over {MAX_RATIO} times its size, unlike any trace"
            raise UnusableInputError(message, hint="if it is a trace, decompress it and import the result")
        return b"".join(pieces)

    def readinto(self, room: memoryview) -> int:
        """Fill a buffer with inflated text; return the number of bytes, 0 only at the end."""
        piece = self.read(len(room))
        room[: len(piece)] = piece
        return len(piece)

    def _some(self, limit: int) -> bytes:
        """Return more text; empty at the end."""
        while not self.damage:
            self._waiting = self._waiting or self._more()
            if not self._inside:
                while self._waiting and not (waiting := self._waiting.lstrip(b"\0")):
                    self._waiting = self._more()  # padding
                self._waiting = waiting if self._waiting else b""
                if not self._waiting.startswith(_GZIP[:1]):
                    while self._waiting:
                        self.ignored += len(self._waiting)
                        self._waiting = self._more()
                    break
            at_end = not self._waiting
            piece = self._inflate(limit)
            if piece:
                return piece
            if at_end and self._inside:
                self.damage, self.damaged_at = "the compressed data ends early", self._taken
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
            self.damaged_at = self._taken - len(self._waiting)
            return self._up_to_damage()
        self._inside = not self._member.eof
        self._waiting = self._member.unconsumed_tail
        if self._member.eof:  # another member may follow
            self._waiting = self._member.unused_data
            self._member = isal_zlib.decompressobj(wbits=_GZIP_FORMAT)
        return piece

    def _up_to_damage(self) -> bytes:
        """Return the text before the damage of the failed call, by inflating again."""
        if not self._raw.seekable():
            return b""
        self._raw.seek(0)
        member, inflated, text = zlib.decompressobj(_GZIP_FORMAT), 0, bytearray()
        while block := member.unused_data or self._raw.read(_STEP):
            member = zlib.decompressobj(_GZIP_FORMAT) if member.eof else member
            before = member.copy()
            try:
                piece, damaged = member.decompress(block), False
            except zlib.error:
                piece, damaged = _bytewise(before, block), True
            text += piece[max(0, self._given - inflated) :]
            inflated += len(piece)
            if damaged:
                break
        return bytes(text)


def _bytewise(member: zlib._Decompress, block: bytes) -> bytes:
    """Inflate a block byte by byte up to its damage."""
    text = bytearray()
    with suppress(zlib.error):
        for place in range(len(block)):
            text += member.decompress(block[place : place + 1])
    return bytes(text)


def _recognize_format(path: Place, raw: io.BufferedReader) -> Stream:
    try:
        head = raw.peek(16)[:16]
    except IsADirectoryError as error:
        raise UnusableInputError(f"{error.filename} is a folder", hint="give a trace in it") from error
    for magic, name in FOREIGN.items():
        if head.startswith(magic):
            message = f"{title(path)} is {name}{NOT_A_TRACE}"
            raise UnusableInputError(message, hint="give JSON or gzipped JSON from torch.profiler")
    if not head:
        raise UnusableInputError(f"{title(path)} is empty", hint="record the trace again")
    return GzipStream(path, raw) if head.startswith(_GZIP) else Stream(raw)


def title(path: Place) -> str:
    """Return the name of an input in messages."""
    return "standard input" if path == STDIN else str(path)


def file_name(path: Place) -> str:
    """Return a file's name in valid UTF-8."""
    return printable(path.name)


@contextmanager
def convert_errors(path: Place) -> Iterator[None]:
    """Convert an error of the file system to one that names the file.

    Raises:
        UnusableInputError: The file cannot be read.
    """
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        message = f"{printable(str(path))} cannot be read: {reason}"
        raise UnusableInputError(message, hint="check the path, or copy the file again") from error


def file_bytes(path: Place) -> int:
    """Return the bytes of a file, or of the files in a folder; 0 for a stream."""
    if kind(path) is Kind.FOLDER:
        return sum(file_bytes(file) for file in path.iterdir() if kind(file) is Kind.FILE)
    return path.stat().st_size if kind(path) is Kind.FILE else 0
