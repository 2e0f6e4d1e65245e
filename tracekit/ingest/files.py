"""Files as they are given: size and name, what tells them apart, what is said when one cannot be read."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit.errors import UnusableInputError
from tracekit.places import STDIN, Kind, kind
from tracekit.spelling import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.places import Place

_SAMPLE = 1 << 20


def size(path: Place) -> int:
    """Bytes of a file, or of the files in a folder; 0 for what has no size before it is read."""
    if kind(path) is Kind.FOLDER:
        return sum(size(file) for file in path.iterdir() if kind(file) is Kind.FILE)
    return path.stat().st_size if kind(path) is Kind.FILE else 0


def identity(path: Place) -> dict[str, Any]:
    """What tells a file, or a folder of tables, apart without reading all of it; a stream is only named.

    Raises:
        UnusableInputError: The file cannot be read.
    """
    if path == STDIN:
        return {"name": "stdin"}
    if kind(path) is Kind.STREAM:
        return {"name": name(path)}
    with reading(path):
        whole = kind(path) is Kind.FOLDER
        inside = sorted(file for file in path.iterdir() if kind(file) is Kind.FILE) if whole else [path]
        digests = [_digest(file, file.stat().st_size) for file in inside]
        return {
            "name": name(path),
            "bytes": sum(file.stat().st_size for file in inside),
            "mtime_ns": max((file.stat().st_mtime_ns for file in inside), default=0),
            "sampled_sha256": hashlib.sha256("".join(digests).encode()).hexdigest() if whole else digests[0],
        }


def _digest(path: Place, length: int) -> str:
    """SHA-256 of a file's first, middle and last MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for start in sorted({0, max(0, (length - _SAMPLE) // 2), max(0, length - _SAMPLE)}):
            stream.seek(start)
            digest.update(stream.read(_SAMPLE))
    return digest.hexdigest()


def is_told_apart(identities: list[dict[str, Any]]) -> bool:
    """Whether all of these say what the files hold; streams and older imports do not."""
    return all("sampled_sha256" in one for one in identities)


@contextmanager
def reading(path: Place) -> Iterator[None]:
    """Turns an error of the file system into one that names the file.

    Raises:
        UnusableInputError: The file cannot be read.
    """
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UnusableInputError(
            f"{printable(str(path))} cannot be read: {reason}", hint="check the path, or copy the file again"
        ) from error


def name(path: Place) -> str:
    """A file's name in valid UTF-8, whatever its bytes are."""
    return printable(path.name)
