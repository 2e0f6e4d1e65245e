"""Paths on object storage with the methods of `pathlib.Path`, and buffered reading of their files."""

from __future__ import annotations

import io
import stat as modes
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from urllib.parse import quote

import msgspec

from tracekit.storage.filesystems import RemoteError, filesystem, reason

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_PLAIN = "/ !\"#$&'()*+,-.:;<=>@[\\]^_`{|}~"
"""Characters beside letters that are not escaped in addresses."""


class Stat(msgspec.Struct, frozen=True):
    """Size and time of a file or folder, with the names of `os.stat_result`."""

    st_mode: int
    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder on object storage; hashable and picklable.

    Methods that access the service raise `OSError` (`FileNotFoundError` if it does not exist) with a message
    of one line. Paths from a listing contain its size and time, and do not request them again.

    Attributes:
        scheme: `s3` or `gs`.
        key: Bucket and key, with single slashes between and none at the end.
        options: Options of the address, by name.

    Example:
        >>> run = RemotePath("s3", "bucket/runs/one")
        >>> str(run / "run.json"), run.parent.name
        ('s3://bucket/runs/one/run.json', 'runs')
    """

    scheme: str
    key: str
    options: tuple[tuple[str, str], ...] = ()
    known: Stat | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """Return the address, which `parse` parses to an equal path."""
        query = "&".join(f"{name}={quote(value, safe=':/')}" for name, value in self.options)
        return f"{self.scheme}://{_spelled(self.key)}" + (f"?{query}" if query else "")

    def __truediv__(self, name: str | PurePosixPath) -> RemotePath:
        return self._at("/".join([self.key, *PurePosixPath(name).parts]))

    def _at(self, key: str) -> RemotePath:
        return replace(self, key=key, known=None)

    @property
    def name(self) -> str:
        """Last part."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """Suffix of the name with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """Bucket and names."""
        return tuple(self.key.split("/"))

    @property
    def parent(self) -> RemotePath:
        """Parent folder; that of a bucket is itself."""
        return self._at(self.key.rpartition("/")[0] or self.key)

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """Parent folders, the innermost first."""
        parts = self.parts
        return tuple(self._at("/".join(parts[:end])) for end in range(len(parts) - 1, 0, -1))

    def with_name(self, name: str) -> RemotePath:
        """Return the path with another name."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> RemotePath:
        """Return the path with another suffix."""
        return self.with_name(PurePosixPath(self.name).with_suffix(suffix).name)

    def relative_to(self, folder: RemotePath) -> PurePosixPath:
        """Return the path relative to a folder."""
        return PurePosixPath(self.key).relative_to(folder.key)

    def resolve(self) -> RemotePath:
        """Return the path itself: there are no links."""
        return self

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The file system, where `key` is the path."""
        return filesystem(self.scheme, self.parts[0], self.options)

    def stat(self) -> Stat:
        """Return size and time.

        Raises:
            OSError: It does not exist, or access is denied.
        """
        if self.known:
            return self.known
        with self._asking():
            found = _stat(self.filesystem.get_file_info(self.key))
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return found

    def resolved(self) -> RemotePath:
        """Return the path with its current size and time, which are not requested again."""
        try:
            return replace(self, known=self.stat())
        except OSError:
            return self

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return modes.S_ISREG(self._mode())

    def is_dir(self) -> bool:
        """Return whether it is a folder: a prefix of names."""
        return modes.S_ISDIR(self._mode())

    def is_symlink(self) -> bool:
        """Return False: there are no links."""
        return False

    def _mode(self) -> int:
        try:
            return self.stat().st_mode
        except FileNotFoundError:
            return 0

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the content of the folder; nothing if it does not exist."""
        return self._listed(deep=False)

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield the matching names in the folder and its subfolders."""
        return (one for one in self._listed(deep=True) if fnmatchcase(one.name, pattern))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield the matching names in the folder."""
        return (one for one in self.iterdir() if fnmatchcase(one.name, pattern))

    def _listed(self, *, deep: bool) -> Iterator[RemotePath]:
        from pyarrow import fs as pafs

        with self._asking():
            select = pafs.FileSelector(self.key, recursive=deep, allow_not_found=True)
            found = self.filesystem.get_file_info(select)
        for info in found:
            yield replace(self, key=info.path.rstrip("/"), known=_stat(info))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open the file for reading in blocks.

        Raises:
            OSError: It does not exist, or access is denied.
        """
        if mode != "rb":
            raise ValueError(f"a file on object storage is opened for reading, not {mode!r}")
        with self._asking():
            return io.BufferedReader(RemoteFile(self), ROOM)

    def read_bytes(self) -> bytes:
        """Return the content of a small file."""
        with self._asking(), self.filesystem.open_input_stream(self.key) as stream:
            content: bytes = stream.read()
        return content

    def write_bytes(self, content: bytes) -> int:
        """Write a small file atomically."""
        with self._asking(), self.filesystem.open_output_stream(self.key) as stream:
            return int(stream.write(content))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the file."""
        try:
            with self._asking():
                self.filesystem.delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove(self) -> None:
        """Delete the folder and its content, if it exists."""
        with self._asking():
            self.filesystem.delete_dir_contents(self.key, missing_dir_ok=True)
            self.filesystem.delete_dir(self.key)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Convert errors of a file system to one line without secrets."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(2, "No such file or directory", str(self)) from error
        except OSError as error:
            raise RemoteError(reason(error)) from error


Place: TypeAlias = Path | RemotePath
"""A local path, or a path on object storage."""
_Folder = TypeVar("_Folder", bound=Place)


def inside(folder: _Folder, pattern: str = "*", *, deep: bool = False) -> list[_Folder]:
    """Return the matching names in a folder, or recursively, sorted.

    Empty if the folder does not exist or is deleted concurrently.
    """
    try:
        found = cast("list[_Folder]", [*(folder.rglob(pattern) if deep else folder.glob(pattern))])
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda one: one.parts)


def _stat(info: Any) -> Stat | None:
    from pyarrow import fs as pafs

    if info.type == pafs.FileType.NotFound:
        return None
    mode = modes.S_IFDIR if info.type == pafs.FileType.Directory else modes.S_IFREG
    return Stat(mode, info.size or 0, info.mtime_ns or 0)


def _spelled(key: str) -> str:
    return "".join(one if one.isalnum() or one in _PLAIN else quote(one, safe="") for one in key)


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
