"""A job and its sources, one for each rank."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit import scrubbing
from tracekit.ingest import files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.meta import Diagnostic
    from tracekit.places import Place

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
        return files.size(self.path)

    @property
    def text_bytes(self) -> int:
        """About how much there is to decode: more than a gzipped file's size; 0 where that is not known."""
        return self.size * (_INFLATED if self.path.suffix == ".gz" else 1)

    @property
    def identity(self) -> dict[str, Any]:
        """What tells the file apart without reading all of it."""
        return files.identity(self.path)


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
