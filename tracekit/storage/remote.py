"""Paths on object storage with the methods of `pathlib.Path`, and buffered reading of their files."""

from __future__ import annotations

import io
import stat as modes
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from urllib.parse import quote

import msgspec

from tracekit.storage.filesystems import RemoteError, filesystem, reason

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow.fs as pafs

_PLAIN = "/ !\"#$&'()*+,-.:;<=>@[\\]^_`{|}~"
"""Characters beside letters that are not escaped in addresses."""
FIRST_BYTES = 256 << 10
"""Bytes of the first requests of a file."""
BLOCK_BYTES = 1 << 20
"""Bytes of a request during sequential reading."""
MAX_REQUESTS = 8
"""Limit of concurrent requests during sequential reading."""
_DIRECT_READS = 4  # consecutive reads from which reading counts as sequential
_COPY_BYTES = 8 << 20


class Stat(msgspec.Struct, frozen=True):
    """Size and time of a file or folder, with the names of `os.stat_result`."""

    st_mode: int
    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder on object storage; hashable and picklable.

    Methods that access the service raise `OSError` (`FileNotFoundError` if it does not exist) with a message
    of one line. Paths from a listing contain size and time, and do not request them again.

    Example:
        >>> run = RemotePath("s3", "bucket/runs/one")
        >>> str(run / "run.json"), run.parent.name
        ('s3://bucket/runs/one/run.json', 'runs')
    """

    scheme: str  # `s3` or `gs`
    key: str  # bucket and key, with single slashes between and none at the end
    options: tuple[tuple[str, str], ...] = ()  # options of the address, by name
    listed: Stat | None = field(default=None, compare=False, repr=False)  # size and time from a listing

    def __str__(self) -> str:
        """Return the address, which `parse` parses to an equal path."""
        key = "".join(char if char.isalnum() or char in _PLAIN else quote(char, safe="") for char in self.key)
        query = "&".join(f"{name}={quote(value, safe=':/')}" for name, value in self.options)
        return f"{self.scheme}://{key}" + (f"?{query}" if query else "")

    def __truediv__(self, name: str | PurePosixPath) -> RemotePath:
        return self._with_key("/".join([self.key, *PurePosixPath(name).parts]))

    def _with_key(self, key: str) -> RemotePath:
        return replace(self, key=key, listed=None)

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
        return self._with_key(self.key.rpartition("/")[0] or self.key)

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """Parent folders, the innermost first."""
        parts = self.parts
        return tuple(self._with_key("/".join(parts[:end])) for end in range(len(parts) - 1, 0, -1))

    def with_name(self, name: str) -> RemotePath:
        """Return the path with another name."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> RemotePath:
        """Return the path with another suffix."""
        return self.with_name(PurePosixPath(self.name).with_suffix(suffix).name)

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
        if self.listed:
            return self.listed
        with self._one_line_errors():
            stat = _stat(self.filesystem.get_file_info(self.key))
        if stat is None:
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return stat

    def with_stat(self) -> RemotePath:
        """Return the path with its current size and time, if it exists, which are not requested again."""
        try:
            return replace(self, listed=self.stat())
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

    def iterdir(self, *, deep: bool = False) -> Iterator[RemotePath]:
        """Yield the content of the folder, or also that of its subfolders; nothing if it does not exist."""
        from pyarrow import fs as pafs

        with self._one_line_errors():
            select = pafs.FileSelector(self.key, recursive=deep, allow_not_found=True)
            infos = self.filesystem.get_file_info(select)
        for info in infos:
            yield replace(self, key=info.path.rstrip("/"), listed=_stat(info))

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield the matching names in the folder and its subfolders."""
        return (path for path in self.iterdir(deep=True) if fnmatchcase(path.name, pattern))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield the matching names in the folder."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open the file for reading in blocks.

        Raises:
            OSError: It does not exist, or access is denied.
        """
        if mode != "rb":
            raise ValueError(f"a file on object storage is opened for reading, not {mode!r}")
        with self._one_line_errors():
            return io.BufferedReader(_RemoteFile(self), FIRST_BYTES)

    def read_bytes(self) -> bytes:
        """Return the content of a small file."""
        with self._one_line_errors(), self.filesystem.open_input_stream(self.key) as stream:
            content: bytes = stream.read()
        return content

    def write_bytes(self, content: bytes) -> int:
        """Write a small file atomically."""
        with self._one_line_errors(), self.filesystem.open_output_stream(self.key) as stream:
            return int(stream.write(content))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the file."""
        try:
            with self._one_line_errors():
                self.filesystem.delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove(self) -> None:
        """Delete the folder and its content, if it exists."""
        with self._one_line_errors():
            self.filesystem.delete_dir_contents(self.key, missing_dir_ok=True)
            self.filesystem.delete_dir(self.key)

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
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
    """Return the matching paths in a folder, sorted; none if it does not exist or is deleted concurrently.

    Args:
        folder: The folder.
        pattern: Pattern of names, as in `fnmatch`.
        deep: Search subfolders, too.
    """
    try:
        paths = cast("list[_Folder]", [*(folder.rglob(pattern) if deep else folder.glob(pattern))])
    except FileNotFoundError:
        return []
    return sorted(paths, key=lambda path: path.parts)


def copy_file(source: Place, target: Place) -> None:
    """Copy a file between this machine and object storage; uploads are atomic.

    Raises:
        RemoteError: It cannot be read or written.
    """
    from pyarrow import fs as pafs

    (start, source_fs), (end, target_fs) = (
        (str(place), pafs.LocalFileSystem()) if isinstance(place, Path) else (place.key, place.filesystem)
        for place in (source, target)
    )
    try:  # one uninterruptible call: closing a stream early would publish a partial object
        pafs.copy_files(
            start,
            end,
            source_filesystem=source_fs,
            destination_filesystem=target_fs,
            chunk_size=_COPY_BYTES,
            use_threads=False,
        )
    except OSError as error:
        raise RemoteError(reason(error)) from error


def _stat(info: Any) -> Stat | None:
    from pyarrow import fs as pafs

    if info.type == pafs.FileType.NotFound:
        return None
    mode = modes.S_IFDIR if info.type == pafs.FileType.Directory else modes.S_IFREG
    return Stat(mode, info.size or 0, info.mtime_ns or 0)


class _RemoteFile(io.RawIOBase):
    """File object of a file on object storage.

    Reading the start or the end requests only these bytes. Sequential reading prefetches the next blocks with
    concurrent requests: a single connection is much slower than the network.
    """

    def __init__(self, path: RemotePath) -> None:
        from concurrent.futures import ThreadPoolExecutor  # not needed by local folders

        super().__init__()
        self._file: Any = path.filesystem.open_input_file(path.key)
        self._size: int = self._file.size()
        self._position = self._expected = self._consecutive = 0
        self._blocks: deque[tuple[int, Future[bytes]]] = deque()  # start and content
        self._requested = 0  # end of the requested blocks
        self._threads = ThreadPoolExecutor(MAX_REQUESTS, "tracekit-read")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer; return the number of bytes, 0 only at the end."""
        if self._position >= self._size:
            return 0
        if self._position != self._expected:
            self._drop_blocks()
        self._consecutive += 1
        try:
            if self._consecutive <= _DIRECT_READS:
                content = memoryview(self._request(self._position, min(len(buffer), BLOCK_BYTES)))
            else:
                content = self._read_block(len(buffer))
        except OSError as error:
            raise OSError(reason(error)) from error
        buffer[: len(content)] = content
        self._position = self._expected = self._position + len(content)
        return len(content)

    def _read_block(self, size: int) -> memoryview:
        """Return up to `size` bytes of the first block, and request further ones, more with each read."""
        if not self._blocks:
            self._requested = self._position
        ahead = min(MAX_REQUESTS, 1 + (self._consecutive - _DIRECT_READS) // 4)
        while len(self._blocks) <= ahead and self._requested < self._size:
            block = self._threads.submit(self._request, self._requested, BLOCK_BYTES)
            self._blocks.append((self._requested, block))
            self._requested += BLOCK_BYTES
        start, block = self._blocks[0]
        offset, block_content = self._position - start, block.result()
        if offset + size >= len(block_content):
            self._blocks.popleft()
        return memoryview(block_content)[offset : offset + size]

    def _request(self, start: int, size: int) -> bytes:
        content: bytes = self._file.read_at(min(size, self._size - start), start)
        return content

    def _drop_blocks(self) -> None:
        self._consecutive = 0
        while self._blocks:
            self._blocks.pop()[1].cancel()

    def close(self) -> None:
        """Free the blocks and close the file."""
        if not self.closed:
            self._drop_blocks()
            self._threads.shutdown(wait=True)
            self._file.close()
        super().close()
