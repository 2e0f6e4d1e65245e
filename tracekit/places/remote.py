"""A path on object storage: it answers what `pathlib.Path` answers, as far as that is asked of places."""

from __future__ import annotations

import io
import stat as modes
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from urllib.parse import quote

import msgspec

from .failures import reason
from .filesystems import filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.fs as pafs

_PLAIN = "/ !\"#$&'()*+,-.:;<=>@[\\]^_`{|}~"
"""What stands in an address as it is; all letters do, too."""


class Stat(msgspec.Struct, frozen=True):
    """What is known of a file or folder, by the names of `os.stat_result`."""

    st_mode: int
    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder on object storage. Cheap to make, to compare and to send to another process.

    Every method that asks the service raises `OSError` (`FileNotFoundError` where nothing is there) with one
    line for people. What a listing told of a path is kept with it and not asked again.

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
        """The address, from which `parse` makes the same place."""
        query = "&".join(f"{name}={quote(value, safe=':/')}" for name, value in self.options)
        return f"{self.scheme}://{_spelled(self.key)}" + (f"?{query}" if query else "")

    def __truediv__(self, name: str | PurePosixPath) -> RemotePath:
        return self._at("/".join([self.key, *PurePosixPath(name).parts]))

    def _at(self, key: str) -> RemotePath:
        return replace(self, key=key, known=None)

    @property
    def name(self) -> str:
        """The last part."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """Bucket and names."""
        return tuple(self.key.split("/"))

    @property
    def parent(self) -> RemotePath:
        """The folder it is in; a bucket is in itself."""
        return self._at(self.key.rpartition("/")[0] or self.key)

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """The folders it is in, the innermost first."""
        parts = self.parts
        return tuple(self._at("/".join(parts[:end])) for end in range(len(parts) - 1, 0, -1))

    def with_name(self, name: str) -> RemotePath:
        """The file of that name beside it."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> RemotePath:
        """The file beside it with another ending."""
        return self.with_name(PurePosixPath(self.name).with_suffix(suffix).name)

    def relative_to(self, folder: RemotePath) -> PurePosixPath:
        """Where it is in a folder."""
        return PurePosixPath(self.key).relative_to(folder.key)

    def resolve(self) -> RemotePath:
        """Itself: there are no links."""
        return self

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The connection; `key` is the path in it."""
        return filesystem(self.scheme, self.parts[0], self.options)

    def stat(self) -> Stat:
        """What is there.

        Raises:
            OSError: Nothing, or the service refuses.
        """
        if self.known:
            return self.known
        with self._asking():
            found = _stat(self.filesystem.get_file_info(self.key))
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return found

    def looked(self) -> RemotePath:
        """The same path with what is there at this moment, so that it is not asked again."""
        try:
            return replace(self, known=self.stat())
        except OSError:
            return self

    def is_file(self) -> bool:
        """Whether a file is there."""
        return modes.S_ISREG(self._mode())

    def is_dir(self) -> bool:
        """Whether a folder is there: on object storage, a prefix of names."""
        return modes.S_ISDIR(self._mode())

    def is_symlink(self) -> bool:
        """Never: there are no links."""
        return False

    def _mode(self) -> int:
        try:
            return self.stat().st_mode
        except FileNotFoundError:
            return 0

    def iterdir(self) -> Iterator[RemotePath]:
        """What is in the folder; nothing where there is none."""
        return self._listed(deep=False)

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """What is in the folder, however deep, and has a name like this."""
        return (one for one in self._listed(deep=True) if fnmatchcase(one.name, pattern))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """What is in the folder and has a name like this."""
        return (one for one in self.iterdir() if fnmatchcase(one.name, pattern))

    def _listed(self, *, deep: bool) -> Iterator[RemotePath]:
        from pyarrow import fs as pafs

        with self._asking():
            select = pafs.FileSelector(self.key, recursive=deep, allow_not_found=True)
            found = self.filesystem.get_file_info(select)
        for info in found:
            yield replace(self, key=info.path.rstrip("/"), known=_stat(info))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open the file for reading; a block is asked for at a time.

        Raises:
            OSError: It is not there, or the service refuses.
        """
        from .stream import ROOM, RemoteFile

        if mode != "rb":
            raise ValueError(f"a file on object storage is opened for reading, not {mode!r}")
        with self._asking():
            return io.BufferedReader(RemoteFile(self), ROOM)

    def read_bytes(self) -> bytes:
        """The whole content of a small file."""
        with self._asking(), self.filesystem.open_input_stream(self.key) as stream:
            content: bytes = stream.read()
        return content

    def write_bytes(self, content: bytes) -> int:
        """Put a small file in place; it is there as a whole or not at all."""
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
        """Delete the folder with all that is in it; nothing happens where there is none."""
        with self._asking():
            self.filesystem.delete_dir_contents(self.key, missing_dir_ok=True)
            self.filesystem.delete_dir(self.key)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turns what a file system says into one line that has no secrets in it."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(2, "No such file or directory", str(self)) from error
        except OSError as error:
            raise RemoteError(reason(error)) from error


class RemoteError(OSError):
    """Object storage refused, or could not be reached."""


Place: TypeAlias = Path | RemotePath
"""A path of this machine or one on object storage."""
_Folder = TypeVar("_Folder", bound=Place)


def inside(folder: _Folder, pattern: str = "*", *, deep: bool = False) -> list[_Folder]:
    """What is in a folder, or however deep in it, and has a name like this, in order.

    Nothing is in a folder that is not there, even if it was deleted only while it was being looked through.
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
    """A key as it stands in an address: readable, and without what would end or break it."""
    return "".join(one if one.isalnum() or one in _PLAIN else quote(one, safe="") for one in key)
