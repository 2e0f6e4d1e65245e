"""Rank of a trace: declared before or after its events, or contained in its file name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from tracekit.errors import TracekitError
from tracekit.ingest import nsys
from tracekit.ingest.kineto.reader import peek
from tracekit.ingest.kineto.source import convert_errors
from tracekit.ingest.link.trace import MAX_RANK, Distributed, TopLevel
from tracekit.storage import Place

_CONCURRENT = 8  # traces that are peeked at concurrently
_TAIL = 1 << 20
_GZIP = b"\x1f\x8b"
_KEY = b'"distributedInfo"'
_COLON = re.compile(r"\s*:\s*")
_IN_NAME = (
    re.compile(
        r"(?:(?<![A-Za-z])(?<!low[_-])(?<!lora[_-])(?i:(?:local|global|world)?rank|worker)"
        r"|(?<=[a-z])(?:Rank|Worker))[_-]?(\d{1,10})(?!\d)"
    ),  # not in `frank7`, nor the rank of a matrix: `lora_rank16`
    re.compile(r"(?:^|[^a-z0-9])r(\d{1,10})(?![a-z0-9])", re.IGNORECASE),
)
_PARALLEL = re.compile(r"(?:^|[^a-z])(dp|pp|tp|ep|cp|dcp)[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
"""Place of a process in a kind of parallelism, as engines write it: `TP-0`, `dp1_tp2`."""


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
    def group(self) -> tuple[object, ...] | None:
        """Key of the job of its rank; None for a trace of a single process."""
        info = self.top.distributed
        if info is None or self.top.rank is None or self.top.world_size < 2:
            return None
        return info.world_size, info.backend, tuple(device.name for device in self.top.devices)


def from_name(name: str) -> int | None:
    """Return the rank that a file name contains.

    Example:
        >>> [from_name(name) for name in ("rank_3", "worker12.pt.trace.json", "job_r7.json", "frank7.json")]
        [3, 12, 7, None]
    """
    match = next((match for pattern in _IN_NAME if (match := pattern.search(name))), None)
    return int(match[1]) if match and int(match[1]) <= MAX_RANK else None


def from_names(names: Sequence[str]) -> list[int | None]:
    """Return the rank in each of the names of a job's files, None for a name without one.

    Without a rank it is the place in the one kind of parallelism that they name, or the order by several.

    Example:
        >>> from_names(["x-TP-3.json", "x-TP-0.json", "scheduler.json"])
        [3, 0, None]
        >>> from_names(["dp1_tp0", "dp0_tp1", "dp0_tp0", "dp1_tp1"])
        [2, 1, 0, 3]
    """
    ranks = [from_name(name) for name in names]
    places = [
        tuple((kind.lower(), min(int(place), MAX_RANK)) for kind, place in _PARALLEL.findall(name))
        for name in names
    ]
    placed = sorted({place for place in places if place})
    kinds = {tuple(kind for kind, _ in place) for place in placed}
    if any(rank is not None for rank in ranks) or len(kinds) != 1 or len(placed) != sum(map(bool, places)):
        return ranks
    if len(next(iter(kinds))) == 1:
        return [place[0][1] if place else None for place in places]
    return [placed.index(place) if place else None for place in places]


def read_headers(paths: Sequence[Place]) -> list[TraceHeader | TracekitError]:
    """Read the top level of each trace, without decoding its events, or return its error; several at once."""
    with ThreadPoolExecutor(_CONCURRENT, "tracekit-header") as threads:
        return list(threads.map(_read_header, paths))


def _read_header(path: Place) -> TraceHeader | TracekitError:
    try:
        if nsys.is_nsys(path):
            return TraceHeader(path, TopLevel(), is_nsys=True)
        with convert_errors(path):
            top = peek(path)
            if top.distributed is None:
                top = msgspec.structs.replace(top, distributed=_after_events(path))
    except TracekitError as error:
        return error
    return TraceHeader(path, top)


def _after_events(path: Place) -> Distributed | None:
    """Return `distributedInfo` from the last MiB of an uncompressed file."""
    with path.open("rb") as stream:
        if stream.read(2) == _GZIP:
            return None
        stream.seek(max(0, path.stat().st_size - _TAIL))
        _, key, tail = stream.read().rpartition(_KEY)
    text = tail.decode(errors="replace")
    if key and (colon := _COLON.match(text)):
        with suppress(ValueError, RecursionError, msgspec.ValidationError):
            value, _ = json.JSONDecoder().raw_decode(text, colon.end())
            return msgspec.convert(value, Distributed, strict=False)
    return None
