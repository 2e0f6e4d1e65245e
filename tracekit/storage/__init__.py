"""Local paths and object storage under one interface: addresses, file systems, atomic writes, locks.

An address is `s3://bucket/prefix?region=eu-west-1`, `gs://…`, `file:///path`, or a path. The part before the
`?` is percent-decoded; other characters may also be unescaped. Options follow the `?`, as in
`pyarrow.fs.FileSystem.from_uri`. Addresses with credentials are refused.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from enum import Enum, auto
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from tracekit.errors import UnusableInputError, printable
from tracekit.storage.atomic import fetch as fetch
from tracekit.storage.atomic import move as move
from tracekit.storage.atomic import put as put
from tracekit.storage.filesystems import OPTIONS, RemoteError
from tracekit.storage.filesystems import reason as reason
from tracekit.storage.remote import Place as Place
from tracekit.storage.remote import RemotePath as RemotePath
from tracekit.storage.remote import inside as inside

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_SECRETS = {"access_key", "secret_key", "session_token", "access_token", "password"}
_WILD = re.compile(r"[*\[]")
_FORMS = "an address is s3://bucket/prefix, gs://bucket/prefix, file:///path, or a path"


def is_address(text: str) -> bool:
    """Return whether a text is an address rather than a path.

    Example:
        >>> is_address("s3://bucket/runs"), is_address("runs/one")
        (True, False)
    """
    return _ADDRESS.fullmatch(text) is not None


def parse(text: str) -> Place:
    """Parse a path or an address, without accessing it.

    Raises:
        UnusableInputError: The address is of another kind, or has unknown or secret options.

    Example:
        >>> parse("s3://bucket/my%20runs/one").name, parse("file:///data/runs").name
        ('one', 'runs')
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return Path(text)
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        return _local(rest)
    if scheme not in OPTIONS:
        raise UnusableInputError(f"{scheme}:// is not supported", hint=_FORMS)
    where, _, query = rest.partition("?")
    bucket, _, key = where.partition("/")
    if "@" in bucket:
        raise _credentials_error(scheme)
    segments = [unquote(segment) for segment in key.split("/") if segment]
    if not bucket or {".", ".."} & set(segments):
        raise UnusableInputError(f"{scheme}://{where[:80]} is not a valid URL", hint=_FORMS)
    return RemotePath(scheme, "/".join([bucket, *segments]), _options(scheme, query))


def _local(rest: str) -> Path:
    host, _, path = rest.partition("/")
    if host not in ("", "localhost"):
        message = f"file://{host}/... is on another machine"
        raise UnusableInputError(message, hint="use three slashes: file:///path")
    return Path("/" + unquote(path))


def _options(scheme: str, query: str) -> tuple[tuple[str, str], ...]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if _SECRETS & set(options):
        raise _credentials_error(scheme)
    unknown = sorted(set(options) - set(OPTIONS[scheme]))
    if unknown:
        message = f"unknown option {unknown[0][:40]!r} in a {scheme}:// URL"
        raise UnusableInputError(message, hint=f"use {', '.join(OPTIONS[scheme])}")
    return tuple(sorted(options.items()))


def _credentials_error(scheme: str) -> UnusableInputError:
    variables = (
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" if scheme == "s3" else "GOOGLE_APPLICATION_CREDENTIALS"
    )
    message = "the URL contains credentials, which shells and logs may record; it was not used"
    return UnusableInputError(message, hint=f"remove them and set {variables}")


def expand(text: str) -> list[Place]:
    """Return the places that match an address with `*`, `**` or `[abc]`, sorted by name.

    Of a path, a shell does so unless it is quoted; one that exists is taken as it is.

    Raises:
        UnusableInputError: The text is not an address, nothing matches, or the folder cannot be listed.
    """
    if not text:  # as a path it would be the current folder
        raise UnusableInputError("the path is empty", hint="is a variable of your shell unset?")
    place = parse(text)
    is_path = isinstance(place, Path) and not is_address(text)
    if is_path and (not _WILD.search(text) or os.path.lexists(text)):
        return [place]
    if not _WILD.search(text):
        return [place if isinstance(place, Path) else place.with_stat()]
    anchor = next(folder for folder in place.parents if not _WILD.search(str(folder)))
    pattern = list(place.parts[len(anchor.parts) :])
    try:
        matching = sorted(_match(anchor, pattern))
    except OSError as error:
        hint = "check the address, the credentials and the network"
        raise UnusableInputError(f"{anchor} cannot be listed: {error}", hint=hint) from error
    if not matching:
        hint = "check the path" if is_path else "list the bucket with the provider's tool"
        raise UnusableInputError(f"nothing matches {place}", hint=hint)
    return matching


def _match(folder: Place, pattern: list[str]) -> Iterator[Place]:
    if not pattern:
        yield folder
        return
    first, *rest = pattern
    if first == "**":
        files = (path for path in folder.rglob("*") if path.is_file())
        yield from (file for file in files if _fits(file.parts[len(folder.parts) :], rest or ["*"]))
    elif not _WILD.search(first):
        yield from _match(folder / first, rest)
    else:
        for path in folder.iterdir():
            if fnmatchcase(path.name, first) and (not rest or path.is_dir()):
                yield from _match(path, rest)


def _fits(names: tuple[str, ...], pattern: list[str]) -> bool:
    last = names[-len(pattern) :]
    return len(last) == len(pattern) and all(map(fnmatchcase, last, pattern))


def cache_folder(name: str) -> Path:
    """Return a folder in the user's cache: in `$XDG_CACHE_HOME` if that is absolute, else in `~/.cache`."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "tracekit" / name


def read_own(file: Place, max_bytes: int) -> bytes:
    """Return the content of a file in the folder of a run; a link there may lead anywhere, and is refused.

    Raises:
        OSError: It is missing, or access is denied.
        ValueError: It is a link, no regular file, or too large.
    """
    if not isinstance(file, Path):
        _check_size(file.name, file.stat().st_size, max_bytes)
        return file.read_bytes()
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # nor waits for a pipe
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{file.name} is a link, which is not followed") from error
        raise
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{file.name} is not a file")
        _check_size(file.name, status.st_size, max_bytes)
        return stream.read()


def _check_size(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ValueError(f"{name} has more than {max_bytes >> 10:,} KiB")


STDIN = Path("-")


class Kind(Enum):
    """Kind of a path."""

    NOTHING = auto()
    FOLDER = auto()
    FILE = auto()
    STREAM = auto()
    """Standard input, a pipe or a device, which can be read only once."""


def kind(path: Place) -> Kind:
    """Return the kind of a path; `NOTHING` if it does not exist or access is denied.

    Raises:
        UnusableInputError: Object storage denies access.
    """
    if path == STDIN:
        return Kind.STREAM
    try:
        mode = path.stat().st_mode
    except RemoteError as error:
        hint = "check the address, the credentials and the network"
        raise UnusableInputError(f"{printable(str(path))} cannot be read: {error}", hint=hint) from error
    except (OSError, ValueError):
        return Kind.NOTHING
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    return Kind.FILE if stat.S_ISREG(mode) else Kind.STREAM
