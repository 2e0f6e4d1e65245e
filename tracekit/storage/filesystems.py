"""Paths on object storage with the methods of `pathlib.Path`, and connections to it, created on first use."""

from __future__ import annotations

import io
import os
import stat as modes
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from urllib.parse import quote

import msgspec

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.fs as pafs


OPTIONS = {
    "s3": (
        "anonymous",
        "endpoint_override",
        "force_virtual_addressing",
        "region",
        "scheme",
        "tls_ca_file_path",
    ),
    "gs": ("anonymous", "endpoint_override", "project_id", "scheme"),
}
"""Options of addresses, by scheme."""
_SWITCHES = {"anonymous", "force_virtual_addressing"}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
CONNECT_SECONDS = 3.0
REQUEST_SECONDS = 4.0
"""Timeout without any data."""
ATTEMPTS = 3
RETRY_SECONDS = 4.0
"""Duration of retries in Google's client."""


def filesystem(scheme: str, bucket: str, options: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    """Return the file system of an address, with credentials from the environment.

    Raises:
        UnusableInputError: An option has an invalid value.
        OSError: It cannot be created.
    """
    if scheme == "gs":
        return _gs(options)
    return _s3(bucket, options, _first(_ENDPOINTS), _first(_REGIONS))


def _first(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


@cache
def _s3(bucket: str, options: tuple[tuple[str, str], ...], endpoint: str, region: str) -> pafs.FileSystem:
    from pyarrow import fs as pafs

    known: dict[str, Any] = _typed(options)
    known = {**_endpoint(known.pop("endpoint_override", endpoint)), **known}
    if "region" not in known and not region and not known.get("endpoint_override"):
        known |= _region_of(bucket)
    return pafs.S3FileSystem(
        allow_delayed_open=True,  # one request for a small file instead of three
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **known,
    )


def _region_of(bucket: str) -> dict[str, str]:
    """Return the region of a bucket; nothing, for the client's default, if unknown."""
    from pyarrow import fs as pafs

    try:
        return {"region": pafs.resolve_s3_region(bucket)}
    except OSError:
        return {}


@cache
def _gs(options: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    from datetime import timedelta

    from pyarrow import fs as pafs

    known = _typed(options)
    known = {**_endpoint(known.pop("endpoint_override", "")), **known}
    return pafs.GcsFileSystem(retry_time_limit=timedelta(seconds=RETRY_SECONDS), **known)


def _typed(options: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {name: _switch(name, value) if name in _SWITCHES else value for name, value in options}


def _switch(name: str, value: str) -> bool:
    words = {"true": True, "1": True, "": True, "false": False, "0": False}
    if value.lower() not in words:
        raise UnusableInputError(f"{name}={value[:40]} in a URL is neither true nor false")
    return words[value.lower()]


def _endpoint(url: str) -> dict[str, str]:
    """Return the options of the file system for an endpoint with or without scheme.

    Example:
        >>> _endpoint("http://127.0.0.1:9000/")
        {'endpoint_override': '127.0.0.1:9000', 'scheme': 'http'}
    """
    scheme, mark, host = url.rpartition("://")
    found = {"endpoint_override": host.rstrip("/")} if host else {}
    return {**found, "scheme": scheme} if mark else found


_SAID = {
    "NO_SUCH_BUCKET": "there is no such bucket",
    "NoSuchBucket": "there is no such bucket",
    "ACCESS_DENIED": "access is denied to these credentials, or there are none",
    "INVALID_ACCESS_KEY_ID": "the access key is unknown there",
    "SIGNATURE_DOES_NOT_MATCH": "the secret key is wrong",
    "INVALID_CLIENT_TOKEN_ID": "the access key is unknown there",
    "EXPIRED_TOKEN": "the session's credentials have expired",
    "ExpiredToken": "the session's credentials have expired",
    "NETWORK_CONNECTION": "the endpoint cannot be reached",
    "Could not connect to server": "the endpoint cannot be reached",
    "Could not create a OAuth2 access token": "no credentials of Google Cloud were found",
    "Could not resolve host": "the endpoint cannot be reached",
    "PERMISSION_DENIED": "access is denied to these credentials, or there are none",
    "UNAUTHENTICATED": "access is denied to these credentials, or there are none",
    "SLOW_DOWN": "the service asks to slow down",
    "PermanentRedirect": "the bucket is in another region; name it, as in ?region=eu-west-1",
}
"""Error codes of the services, and their meaning."""
_LONGEST = 200


def reason(error: BaseException) -> str:
    """Return the reason of an error in one line, with the meaning of known error codes.

    Example:
        >>> reason(OSError("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7"))
        'the endpoint cannot be reached'
    """
    text = " ".join(str(error).split())
    said = next((meaning for word, meaning in _SAID.items() if word in text), text)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


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
        from tracekit.storage.transfer import ROOM, RemoteFile

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


class RemoteError(OSError):
    """Object storage denied access or is unreachable."""


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
    """Escape a key for an address."""
    return "".join(one if one.isalnum() or one in _PLAIN else quote(one, safe="") for one in key)
