"""Split a trace that a tool has merged from the traces of several ranks.

Such tools keep the ranks apart by their process ids alone: TraceLens adds a multiple of a power of ten to
those of each rank, and writes `rank` into arguments; SGLang writes `[TP00-DP01] 123`. Correlation ids,
devices and streams may be the same in all ranks. So each rank is written to a file of its own, and read like
other traces.

Sources: TraceLens' TraceFusion; SGLang's profile merger.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tracekit.ingest.kineto.columns import MAX_DEVICES
from tracekit.ingest.kineto.events import UNREADABLE
from tracekit.ingest.kineto.source import open_trace
from tracekit.ingest.kineto.split import repair
from tracekit.ingest.link.trace import MAX_RANK
from tracekit.ingest.spool.part_files import SpooledTable
from tracekit.schema import HOST_INTERVALS, C
from tracekit.storage import STDIN, Kind, Place, kind

LEAST_OFFSET = 10_000_000
"""Process ids of Linux are below 2^22: larger ones were changed."""
_OFFSETS = [10**exponent for exponent in range(7, 18)]
MAX_LABEL = 1_024
"""Number in a label, which processes of containers have as their id, too."""
_BEGIN = 1 << 18  # bytes of text in which a label is searched: some hundred events
_LABELED_PID = re.compile(rb'"pid"\s*:\s*"\[')
_LABEL = re.compile(r"(\[[^\]]+\])\s*(.*)", re.DOTALL)


class _Args(msgspec.Struct):
    rank: Any = None


class _Owner(msgspec.Struct):
    """What tells the rank of an event."""

    pid: Any = None
    args: _Args | None = None


_decode_owner = msgspec.json.Decoder(_Owner).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_Group = int | str


def may_hold_ranks(path: Place, directory: Path) -> bool:
    """Whether the process ids of a trace, at its begin and its end, may tell several ranks apart.

    Reading a trace again takes long, so that of an ordinary one at most the begin is.

    Args:
        path: The trace.
        directory: Folder of its decoded events, in which an id with a label is the number in the label.
    """
    host = SpooledTable(directory, HOST_INTERVALS.name)
    if not host.rows or path == STDIN or kind(path) is Kind.STREAM:  # a stream can be read only once
        return False
    edges = [host.whole_part(part) for part in {host.parts[0], host.parts[-1]}]
    pids = host.read(edges, [C.PID]).integers(C.PID)
    return bool(pids.max() >= LEAST_OFFSET or (pids.min() < MAX_LABEL and _begins_with_labels(path)))


def holds_ranks(path: Place, directory: Path) -> bool:
    """Whether the process ids of a trace that cannot be split are those of several ranks."""
    pids = SpooledTable(directory, HOST_INTERVALS.name).distinct(C.PID).tolist()
    return bool(_find_offset(pids)) or (min(pids) < MAX_LABEL and _begins_with_labels(path))


def _begins_with_labels(path: Place) -> bool:
    with open_trace(path) as stream:
        return bool(_LABELED_PID.search(stream.read(_BEGIN)))


def split_ranks(path: Place, directory: Path) -> dict[int, Path] | None:
    """Write the events of each rank of a merged trace to a file.

    Args:
        path: The trace.
        directory: Folder of the files.

    Returns:
        The files by rank; empty if the trace is not merged, None if it is damaged.
    """
    with open_trace(path) as stream:
        text = b"".join(iter(lambda: stream.read(1 << 24), b""))
    try:
        fields = _decode_fields(text)
        events = _decode_list(fields.pop("traceEvents", b"[]"))
        owners = [_decode_owner(event) for event in events]
    except UNREADABLE:
        return None
    offset = _find_offset([owner.pid for owner in owners])
    members: dict[_Group, list[int]] = defaultdict(list)
    for place, owner in enumerate(owners):
        group, _ = _split_pid(owner.pid, offset)
        if group is not None:
            members[group].append(place)
    if len(members) < 2:
        return {}
    files: dict[int, Path] = {}
    ranks = _number_ranks(members, owners)
    for rank, places in ranks.items():
        files[rank] = directory / f"rank-{rank:05d}.json"
        try:
            of_rank = [_with_own_pid(events[place], owners[place].pid, offset) for place in places]
        except UNREADABLE:
            return None
        info = {"rank": rank, "world_size": max(ranks) + 1}
        whole = {**fields, "distributedInfo": info, "traceEvents": of_rank}
        files[rank].write_bytes(msgspec.json.encode(whole))
    return files


def _find_offset(pids: list[Any]) -> int:
    """The power of ten of which each rank's process ids have their multiple; 0 if they have none.

    It is the one that leaves most ranks.

    Example:
        >>> _find_offset([0, 4711, 100_000_000, 100_004_711]), _find_offset([0, 4711])
        (100000000, 0)
    """
    numbers = {pid for pid in pids if isinstance(pid, int) and pid >= 0}
    ranks = {offset: {number // offset for number in numbers} for offset in _OFFSETS}
    whole = [offset for offset in _OFFSETS if _are_ranks(ranks[offset], numbers, offset)]
    offset = max(whole, key=lambda offset: len(ranks[offset]), default=0)
    return offset if offset and len(ranks[offset]) > 1 else 0


def _are_ranks(ranks: set[int], pids: set[int], offset: int) -> bool:
    """Whether ranks are numbered without a gap, from 0 or with a process id of a device each."""
    first = min(ranks, default=0)
    with_device = {pid // offset for pid in pids if pid % offset < MAX_DEVICES}
    return ranks == set(range(first, first + len(ranks))) and (not first or ranks == with_device)


def _split_pid(pid: Any, offset: int) -> tuple[_Group | None, Any]:
    """The group of a process id, None if it belongs to no rank, and the id before the merge."""
    if isinstance(pid, str) and (match := _LABEL.fullmatch(pid)):
        label, rest = match.groups()
        return label, int(rest) if rest.isdigit() else rest
    if offset and isinstance(pid, int) and pid >= 0:
        return divmod(pid, offset)
    return None, pid


def _number_ranks(members: Mapping[_Group, list[int]], owners: list[_Owner]) -> dict[int, list[int]]:
    """Return the events by rank: the rank that each group's arguments name, else groups in order."""
    named = {}
    for group, places in members.items():
        ranks = {args.rank for place in places if (args := owners[place].args) and args.rank is not None}
        with suppress(TypeError, ValueError):
            (rank,) = ranks
            named[group] = int(rank)
    if len(set(named.values())) == len(members) and all(0 <= rank <= MAX_RANK for rank in named.values()):
        return {named[group]: places for group, places in members.items()}
    in_order = enumerate(sorted(members, key=_in_order))
    return {group if isinstance(group, int) else rank: members[group] for rank, group in in_order}


def _in_order(group: _Group) -> tuple[int, str]:
    return (group, "") if isinstance(group, int) else (0, group)


def _with_own_pid(event: msgspec.Raw, pid: Any, offset: int) -> dict[str, Any]:
    try:
        fields = _decode_fields(event)
    except UNREADABLE:  # such as a name in another encoding
        fields = _decode_fields(repair(bytes(event)))
    return {**fields, "pid": _split_pid(pid, offset)[1]}
