"""Atomic writes to local and object storage, downloads, and buffered reading of remote files."""

from __future__ import annotations

import io
import os
import secrets
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.storage.filesystems import RemoteError, reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    import pyarrow.fs as pafs

    from tracekit.storage.filesystems import Place, RemotePath


_BLOCK = 8 << 20


@contextmanager
def put(place: Place) -> Iterator[Path]:
    """Write a file atomically: yields a temporary file, which is moved to its place at exit without an error.

    A local file is renamed from the same folder; on object storage it is uploaded as one object. Of
    concurrent writes to the same place, one wins.

    Args:
        place: Destination; its folder is created.

    Raises:
        OSError: The file cannot be written or uploaded.

    Example:
        >>> with put(Path("/tmp/tracekit-example.txt")) as file:  # doctest: +SKIP
        ...     _ = file.write_text("whole")
    """
    if isinstance(place, Path):
        with _beside(place) as file:
            yield file
    else:
        with tempfile.TemporaryDirectory(prefix="tracekit-put-") as folder:
            file = Path(folder) / "file"
            yield file
            send(file, place)


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield temporary
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def send(file: Path, place: RemotePath) -> None:
    """Upload a local file to object storage atomically.

    Raises:
        OSError: The file cannot be read or uploaded.
    """
    from pyarrow import fs as pafs

    # One uninterruptible call: closing a stream early would publish a partial object.
    _copy(str(file), pafs.LocalFileSystem(), place.key, place.filesystem)


def move(file: Path, place: Place) -> None:
    """Move a local file: rename it on the same disk, else upload it.

    Raises:
        OSError: The file cannot be moved.
    """
    if isinstance(place, Path):
        file.rename(place)
    else:
        send(file, place)
        file.unlink()


def fetch(place: Place, folder: Path) -> Path:
    """Return a local path with the content of a place: itself, or a copy.

    Args:
        place: A file, or a folder of files.
        folder: Existing folder for copies from object storage.

    Raises:
        OSError: It cannot be read or copied.
    """
    if isinstance(place, Path):
        return place
    files = [one for one in place.iterdir() if one.is_file()] if place.is_dir() else []
    copy = folder / place.name
    for file in files:
        copy.mkdir(exist_ok=True)
        _bring(file, copy / file.name)
    if not files:
        _bring(place, copy)
    return copy


def _bring(place: RemotePath, target: Path) -> None:
    from pyarrow import fs as pafs

    _copy(place.key, place.filesystem, str(target), pafs.LocalFileSystem())


def _copy(source: str, here: pafs.FileSystem, target: str, there: pafs.FileSystem) -> None:
    from pyarrow import fs as pafs

    try:
        pafs.copy_files(
            source,
            target,
            source_filesystem=here,
            destination_filesystem=there,
            chunk_size=_BLOCK,
            use_threads=False,
        )
    except OSError as error:
        raise RemoteError(reason(error)) from error


ROOM = 256 << 10
"""Bytes of the first requests."""
BLOCK = 1 << 20
"""Bytes of a request during sequential reading."""
AHEAD = 8
"""Limit of concurrent requests during sequential reading."""
_LOOKING = 4
"""Consecutive reads from which reading counts as sequential."""


class RemoteFile(io.RawIOBase):
    """File object of a file on object storage.

    Reading the start or the end requests only these bytes; sequential reading prefetches the next blocks with
    concurrent requests.
    """

    def __init__(self, path: RemotePath) -> None:
        super().__init__()
        self._file: Any = path.filesystem.open_input_file(path.key)
        self._size: int = self._file.size()
        self._at = self._expected = self._streak = 0
        self._blocks: deque[Future[bytes]] = deque()
        self._next = self._used = 0
        self._threads = ThreadPoolExecutor(AHEAD, "tracekit-read")

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, room: Any, /) -> int:
        """Fill a buffer; return the number of bytes, 0 only at the end.

        Raises:
            OSError: Access is denied, or the service does not respond.
        """
        if self._at >= self._size:
            return 0
        try:
            piece = self._piece(len(room))
        except OSError as error:
            raise OSError(reason(error)) from error
        room[: len(piece)] = piece
        self._at = self._expected = self._at + len(piece)
        return len(piece)

    def _piece(self, most: int) -> memoryview:
        if self._at != self._expected:
            self._forget()
        self._streak += 1
        if self._streak <= _LOOKING:
            return memoryview(self._fetched(self._at, min(most, BLOCK)))
        if not self._blocks:
            self._next, self._used = self._at, 0
        self._ask()
        block = self._blocks[0].result()
        piece = memoryview(block)[self._used : self._used + most]
        self._used += len(piece)
        if self._used >= len(block):
            self._blocks.popleft()
            self._used = 0
        return piece

    def _ask(self) -> None:
        wanted = min(AHEAD, 1 + (self._streak - _LOOKING) // 4)
        while len(self._blocks) <= wanted and self._next < self._size:
            self._blocks.append(self._threads.submit(self._fetched, self._next, BLOCK))
            self._next += BLOCK

    def _fetched(self, start: int, most: int) -> bytes:
        content: bytes = self._file.read_at(min(most, self._size - start), start)
        return content

    def _forget(self) -> None:
        self._streak = 0
        while self._blocks:
            self._blocks.pop().cancel()

    def close(self) -> None:
        """Free the blocks and close the file."""
        if not self.closed:
            self._forget()
            self._threads.shutdown(wait=True)
            self._file.close()
        super().close()
