"""Files as they are given: size and name, what tells them apart, what is said when one cannot be read."""

from __future__ import annotations

import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.errors import UnusableInputError, printable
from tracekit.runs import scrubbing
from tracekit.storage import STDIN, Kind, kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.runs.meta import Diagnostic
    from tracekit.storage import Place


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


_SUFFIX = re.compile(r"(\.pt)?(\.trace)?(\.json)?(\.gz)?$|\.(sqlite|nsys-rep|qdrep)$|_pqtdir$")
_LOOKS = 8
"""Files that are looked at at a time."""
_INFLATED = 12
"""Times its own size that a gzipped trace inflates to, at the least."""


class Source(msgspec.Struct, frozen=True):
    """One trace of a job.

    Attributes:
        rank: Its rank, as declared in the trace, told by its name, or counted; None when it is alone and says
            nothing that can be seen before it is decoded.
        assumed: Whether the rank was counted, for want of anything better.
    """

    path: Place
    rank: int | None = None
    assumed: bool = False

    @property
    def size(self) -> int:
        """Bytes of the file; 0 for what has no size before it is read."""
        return size(self.path)

    @property
    def text_bytes(self) -> int:
        """About how much there is to decode: more than a gzipped file's size; 0 where that is not known."""
        return self.size * (_INFLATED if self.path.suffix == ".gz" else 1)

    @property
    def identity(self) -> dict[str, Any]:
        """What tells the file apart without reading all of it."""
        return identity(self.path)


class Job(msgspec.Struct, frozen=True):
    """Traces that become one run.

    Attributes:
        notes: What was noticed while they were looked for.
    """

    name: str
    sources: tuple[Source, ...]
    notes: tuple[Diagnostic, ...] = ()


def identities(sources: Sequence[Source]) -> list[dict[str, Any]]:
    """What tells each file apart, some looked at at a time, as each may be far away."""
    with ThreadPoolExecutor(_LOOKS, "tracekit-look") as threads:
        return list(threads.map(lambda source: source.identity, sources))


def cycles(name: str | None, sources: list[Source]) -> list[Job]:
    """Split sources so that a rank occurs once in each job: its n-th trace goes to the n-th job.

    Args:
        name: The jobs' name; None names each after its first trace.
        sources: Traces with a rank.
    """
    found: list[dict[int | None, Source]] = []
    for source in sorted(sources, key=lambda source: source.path.name):
        free = next((cycle for cycle in found if source.rank not in cycle), None)
        if free is None:
            found.append(free := {})
        free[source.rank] = source
    return [_job(name, tuple(cycle.values())) for cycle in found]


def alone(path: Place) -> Job:
    """A trace that is a job of its own."""
    return Job(_stem(path), (Source(path),))


def _job(name: str | None, sources: tuple[Source, ...]) -> Job:
    ordered = tuple(sorted(sources, key=lambda source: (source.rank or 0, source.path.name)))
    return Job(name or _stem(ordered[0].path), ordered)


def _stem(path: Place) -> str:
    return _SUFFIX.sub("", scrubbing.trace_name(path.name)) or "trace"
