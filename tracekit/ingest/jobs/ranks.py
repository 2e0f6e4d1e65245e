"""Rank of a trace: declared before or after its events, or contained in its file name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec import structs

from tracekit.errors import TracekitError
from tracekit.ingest import nsys
from tracekit.ingest.jobs.sources import Source
from tracekit.ingest.kineto.reader import peek
from tracekit.ingest.kineto.source import convert_errors
from tracekit.ingest.link.trace import Distributed, TopLevel, Trace
from tracekit.storage import Place

_HIGHEST = 2**31 - 1
_CONCURRENT = 8
"""Traces that are peeked at concurrently."""
_TAIL = 1 << 20
_GZIP = b"\x1f\x8b"
_KEY = b'"distributedInfo"'
_COLON = re.compile(r"\s*:\s*")
_IN_NAME = re.compile(r"(?:rank|worker)[_-]?(\d{1,10})(?!\d)", re.IGNORECASE)


class TraceHeader(msgspec.Struct, frozen=True):
    """A trace, and its top level as far as it can be read without decoding events.

    Attributes:
        is_nsys: Whether Nsight Systems recorded it; such a file may contain several ranks, which only reading
            it shows.
    """

    path: Place
    top: TopLevel
    is_nsys: bool = False

    @property
    def rank(self) -> int | None:
        """The declared rank."""
        return declared_rank(self.top)

    @property
    def world_size(self) -> int:
        """The declared number of ranks of its job, 0 if there is none."""
        return world_size(self.top)

    @property
    def group(self) -> tuple[object, ...] | None:
        """Key of the job of its rank; None for a trace of a single process."""
        info = self.top.distributed
        if info is None or self.rank is None or self.world_size < 2:
            return None
        return info.world_size, info.backend, tuple(device.name for device in self.top.devices)


def declared_rank(top: TopLevel) -> int | None:
    """Return the declared rank of a trace; None if it is absent or invalid."""
    rank = top.distributed.rank if top.distributed else None
    return rank if rank is not None and 0 <= rank <= _HIGHEST else None


def world_size(top: TopLevel) -> int:
    """Return the declared number of ranks of a trace's job, 0 if it is absent."""
    size = (top.distributed.world_size if top.distributed else None) or 0
    return size if 0 <= size <= _HIGHEST else 0


def from_name(name: str) -> int | None:
    """Return the rank that a file name contains.

    Example:
        >>> [from_name("rank_3"), from_name("worker12.pt.trace.json"), from_name("left.json")]
        [3, 12, None]
    """
    match = _IN_NAME.search(name)
    return int(match[1]) if match and int(match[1]) <= _HIGHEST else None


def read_header(path: Place) -> TraceHeader:
    """Read the top level of a trace, without decoding its events.

    Raises:
        UnusableInputError: The file is not a trace, or cannot be read.
    """
    if nsys.is_nsys(path):
        return TraceHeader(path, TopLevel(), is_nsys=True)
    with convert_errors(path):
        top = peek(path)
        if top.distributed is None:
            top = msgspec.structs.replace(top, distributed=_after_events(path))
    return TraceHeader(path, top)


def read_headers(paths: Sequence[Place]) -> list[TraceHeader | TracekitError]:
    """Return the result or error of `read_header` for each trace, several concurrently."""
    with ThreadPoolExecutor(_CONCURRENT, "tracekit-header") as threads:
        return list(threads.map(_try_read_header, paths))


def _try_read_header(path: Place) -> TraceHeader | TracekitError:
    try:
        return read_header(path)
    except TracekitError as error:
        return error


def _after_events(path: Place) -> Distributed | None:
    """Return `distributedInfo` from the last MiB of an uncompressed file."""
    with path.open("rb") as stream:
        if stream.read(2) == _GZIP:
            return None
        stream.seek(max(0, path.stat().st_size - _TAIL))
        _, key, text = stream.read().rpartition(_KEY)
    return _value(text.decode(errors="replace")) if key else None


def _value(text: str) -> Distributed | None:
    colon = _COLON.match(text)
    if not colon:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, colon.end())
        return msgspec.convert(value, Distributed, strict=False)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def sort_by_rank(pairs: Sequence[tuple[Source, Trace]]) -> list[tuple[Source, Trace]]:
    """Return sources and decoded traces sorted by rank; declared ranks override assumed ones."""
    ranked = [_with_declared_rank(source, trace.top) for source, trace in pairs]
    if len({source.rank for source in ranked}) < len(ranked):
        ranked = [source for source, _ in pairs]  # two traces declare the same rank
    traces = (trace for _, trace in pairs)
    return sorted(zip(ranked, traces, strict=True), key=lambda pair: pair[0].rank or 0)


def _with_declared_rank(source: Source, top: TopLevel) -> Source:
    rank = declared_rank(top)
    if rank is None or (source.rank is not None and not source.assumed):
        return source
    return structs.replace(source, rank=rank, assumed=False)
