"""Split a trace that a tool has merged from the traces of several ranks or processes.

Correlation ids, devices and streams may be the same in all of them, so each is written to a file of its own,
and read like other traces. These tell the ranks, the first that the trace has:

1. process ids: TraceLens adds a multiple of a power of ten to those of each rank, SGLang writes
   `[TP00-DP01] 123`, others a rank as in file names (`rank1/123`);
2. `rank` in the arguments of events;
3. names of processes, as in file names;
4. equal correlation ids in several processes: a profiler gives each id once, so they are several recordings,
   which are counted as ranks in the order of their process ids.

Work of a device has the id of the device for a process, which all ranks may share. It belongs to the process
of which a call with its correlation id started before it, and where several did, to the one whose delays are
short, or that no other work of that id can belong to. What remains unclear gets no launch.

Sources: TraceLens' TraceFusion; SGLang's profile merger.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from tracekit.ingest.kineto.columns import DEVICE_CATEGORIES, HOST_CATEGORIES, MAX_DEVICES
from tracekit.ingest.kineto.device_work import (
    NO_ARGS,
    Group,
    Owner,
    calls_by_id,
    give_work,
    in_order,
    pair_processes,
    rank_of,
    read_owner,
)
from tracekit.ingest.kineto.events import UNREADABLE
from tracekit.ingest.kineto.source import file_name, open_trace, title
from tracekit.ingest.kineto.split import read_opening, repair, take_apart
from tracekit.ingest.link.trace import Trace
from tracekit.ingest.spool.part_files import SpooledTable
from tracekit.ingest.spool.text_columns import NO_STRINGS
from tracekit.runs.meta import Diagnostic, Level
from tracekit.schema import HOST_INTERVALS, C, HostKind
from tracekit.storage import STDIN, Kind, Place, kind

LEAST_OFFSET = 10_000_000
"""Process ids of Linux are below 2^22: larger ones were changed."""
_OFFSETS = [10**exponent for exponent in range(7, 18)]
_TELLS_RANK = re.compile(rb'"pid"\s*:\s*"[^"]*\d|"args"\s*:\s*\{[^{}]*"rank"\s*:')
_LABEL = re.compile(r"(\[[^\]]+\])\s*(.*)", re.DOTALL)
_PREFIX = re.compile(r"(\d{1,6})[:/](\d+)")
_NUMBER = re.compile(r"\d+")
_SEPARATOR = re.compile(r"[\s/:|]+")
_LINKS = frozenset({"correlation", "External id", "external id"})
_CALL_CATEGORIES = frozenset(name for name, of_kind in HOST_CATEGORIES.items() if of_kind is HostKind.RUNTIME)


_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
RanksIn: TypeAlias = Callable[[Sequence[str]], list[int | None]]
"""Ranks that names contain, None for names without one."""


class Division(msgspec.Struct, frozen=True):
    """Files of the ranks of a trace, empty if it is of one; and what is to be said of them."""

    files: dict[int, Path] = msgspec.field(default_factory=dict)
    notes: tuple[Diagnostic, ...] = ()


def tells_ranks(text: bytes) -> bool:
    """Whether labels or arguments of the first events may name ranks.

    Example:
        >>> tells_ranks(b'{"pid": "[TP00] 9"}'), tells_ranks(b'{"pid": 9, "args": {"rank": 0}}')
        (True, True)
    """
    return bool(_TELLS_RANK.search(text))


def may_hold_ranks(trace: Trace) -> bool:
    """Whether a trace may be of several ranks, by its first events and the process ids at its begin and end.

    Reading a trace again takes long, so that an ordinary one is not.
    """
    host = SpooledTable(trace.directory, HOST_INTERVALS.name)
    if not host.rows or trace.path == STDIN or kind(trace.path) is Kind.STREAM:  # can be read only once
        return False
    edges = [host.whole_part(part) for part in {host.parts[0], host.parts[-1]}]
    rows = host.read(edges, [C.PID, C.KIND])
    is_call = host.texts.get(C.KIND, NO_STRINGS).among([HostKind.RUNTIME])[rows.integers(C.KIND)]
    pids = rows.integers(C.PID)
    callers = pids[is_call]
    has_callers = len(callers) > 0 and bool(callers.min() < callers.max())
    return trace.tells_ranks or has_callers or bool(pids.max() >= LEAST_OFFSET)


def split_ranks(path: Place, directory: Path, ranks_in: RanksIn) -> Division:
    """Write the events of each rank of a merged trace to a file.

    Args:
        path: The trace.
        directory: Folder of the files.
        ranks_in: Reads ranks in names.
    """
    fields, events = _read_events(path)
    owners = [*map(read_owner, events)]
    assigned = _by_pids(owners, ranks_in) or _by_arguments(owners) or _by_processes(owners, ranks_in)
    if not assigned:
        return Division()
    members: dict[Group, list[int]] = defaultdict(list)
    for place, groups in enumerate(assigned.groups):
        for group in groups:
            members[group].append(place)
    ranks = assigned.ranks or _number_ranks(members, owners)
    shared: dict[str, Any] = {**_read_distributed(fields), "world_size": max(ranks.values()) + 1}
    files: dict[int, Path] = {}
    for group, rank in ranks.items():
        rewritten = (
            _rewrite(events[place], owners[place].pid, assigned, keep_id=place not in assigned.unclear)
            for place in members[group]
        )
        of_rank = [event for event in rewritten if event]
        files[rank] = directory / f"rank-{rank:05d}.json"
        of_it = {"distributedInfo": {**shared, "rank": rank}, "traceEvents": of_rank}
        files[rank].write_bytes(msgspec.json.encode({**fields, **of_it}))
    return Division(files, tuple(_describe(file_name(path), assigned)))


def _read_events(path: Place) -> tuple[dict[str, msgspec.Raw], Sequence[bytes | msgspec.Raw]]:
    """Return the members of the top level beside the events, and the text of each event."""
    with open_trace(path) as stream:
        opening = read_opening(stream, title(path))
        rest = b"".join((opening.rest, *iter(lambda: stream.read(1 << 24), b"")))
    if b'"traceEvents"' not in rest:  # else the last list would count
        with suppress(*UNREADABLE):
            fields = _decode_fields(opening.header + rest)
            return fields, _decode_list(fields.pop("traceEvents"))
    pieces = take_apart(rest)
    for end in (pieces.tail if pieces.ended else b"]}", b"]}"):
        with suppress(*UNREADABLE):
            fields = _decode_fields(opening.header + end)
            del fields["traceEvents"]
            return fields, pieces.events
    return {}, pieces.events


def _read_distributed(fields: dict[str, msgspec.Raw]) -> dict[str, Any]:
    with suppress(*UNREADABLE):
        return msgspec.json.decode(fields.get("distributedInfo", b"{}"), type=dict[str, Any])
    return {}


class _Assignment(msgspec.Struct, frozen=True):
    """Groups of each event, which are ranks or names of them.

    Attributes:
        groups: The groups; several for metadata of all.
        pids: Process ids that are changed, by those of the file.
        ranks: The rank of each group; empty if the events tell it.
        unclear: Places of device events whose process is not known.
        processes: Process ids in the order of their ranks, where nothing else tells these.
    """

    groups: Sequence[tuple[Group, ...]]
    pids: dict[Any, Any] = msgspec.field(default_factory=dict)
    ranks: dict[Group, int] = msgspec.field(default_factory=dict)
    unclear: set[int] = msgspec.field(default_factory=set)
    processes: tuple[Any, ...] = ()


def _describe(name: str, assigned: _Assignment) -> Iterator[Diagnostic]:
    if assigned.processes:
        listed = ", ".join(map(str, assigned.processes))
        message = f"{name}: the processes {listed} have equal correlation ids, so they were recorded apart"
        text = f"{message}; they are ranks in this order, as the trace does not tell their rank"
        yield Diagnostic(Level.WARN, "rank_assumed", text)
    if assigned.unclear:
        message = f"{name}: {len(assigned.unclear):,} device intervals may be of several processes"
        yield Diagnostic(Level.WARN, "unclear_process", f"{message}, and have no launch")


def _by_pids(owners: Sequence[Owner], ranks_in: RanksIn) -> _Assignment | None:
    """Assign events by what was done to their process ids."""
    pids = {owner.pid for owner in owners}
    split = _split_words({pid for pid in pids if isinstance(pid, str)}, ranks_in)
    if offset := _find_offset(pids):
        split |= {pid: divmod(pid, offset) for pid in pids if isinstance(pid, int) and pid >= 0}
    if len({group for group, _ in split.values()}) < 2:
        return None
    groups: list[tuple[Group, ...]] = [
        (split[owner.pid][0],) if owner.pid in split else () for owner in owners
    ]
    calls, work = _calls(owners), _work(owners)
    by_group = calls_by_id(calls, owners, lambda place: next(iter(groups[place]), None))
    by_group.pop(None, None)
    loose = [place for place in work if not groups[place]]
    if len(by_group) > 1 and len({groups[place] for place in work}) == 1:  # the device was not changed
        loose = work
    told = {place: rank for place in loose if (rank := rank_of(owners[place])) in by_group}
    given, unclear = give_work(by_group, [place for place in loose if place not in told], owners)
    given |= told
    groups = [(given[place],) if place in given else of for place, of in enumerate(groups)]
    return _Assignment(groups, {pid: rest for pid, (_, rest) in split.items()}, unclear=unclear)


def _split_words(words: set[str], ranks_in: RanksIn) -> dict[Any, tuple[Group, Any]]:
    """Return the group and the process id that words contain: `[TP00] 12`, `1:12`, `rank1/12`."""
    labels = {word: match for word in words if (match := _LABEL.fullmatch(word))}
    if labels:
        rests = {word: match[2] for word, match in labels.items()}
        return {
            word: (match[1], int(rests[word]) if rests[word].isdigit() else rests[word])
            for word, match in labels.items()
        }
    prefixes = {word: match for word in words if (match := _PREFIX.fullmatch(word))}
    if len(prefixes) == len(words):
        return {word: (int(match[1]), int(match[2])) for word, match in prefixes.items()}
    names = {word: _SEPARATOR.split(word, maxsplit=1)[0] for word in words}
    distinct = sorted(set(names.values()))
    ranks = dict(zip(distinct, ranks_in(distinct), strict=True))
    return {
        word: (rank, int(_NUMBER.findall(word)[-1][-9:]))
        for word, name in names.items()
        if (rank := ranks[name]) is not None
    }


def _find_offset(pids: Iterable[Any]) -> int:
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


def _number_ranks(members: Mapping[Group, list[int]], owners: Sequence[Owner]) -> dict[Group, int]:
    """Return the rank of each group: the one that its arguments name, else groups in order."""
    named: dict[Group, int] = {}
    for group, places in members.items():
        ranks = {rank for place in places if (rank := rank_of(owners[place])) is not None}
        if len(ranks) == 1:
            named[group] = ranks.pop()
    if len(set(named.values())) == len(members):
        return named
    return {
        group: group if isinstance(group, int) else rank
        for rank, group in enumerate(sorted(members, key=in_order))
    }


def _calls(owners: Sequence[Owner]) -> list[int]:
    return [place for place, owner in enumerate(owners) if owner.ph == "X" and owner.cat in _CALL_CATEGORIES]


def _work(owners: Sequence[Owner]) -> list[int]:
    return [place for place, owner in enumerate(owners) if owner.ph == "X" and owner.cat in DEVICE_CATEGORIES]


def _by_arguments(owners: Sequence[Owner]) -> _Assignment | None:
    """Assign events by the rank in their arguments; those without it with others of their process."""
    ranks = [*map(rank_of, owners)]
    calls, work = _calls(owners), _work(owners)
    if len({ranks[place] for place in calls + work} - {None}) < 2:
        return None
    by_process: dict[Any, set[int]] = defaultdict(set)
    for owner, rank in zip(owners, ranks, strict=True):
        if rank is not None:
            by_process[owner.pid].add(rank)
    unknown = {owners[place].pid for place in calls} - by_process.keys()
    by_rank = calls_by_id(work, owners, lambda place: ranks[place])
    for pid, rank in pair_processes(
        calls_by_id(calls, owners, lambda place: owners[place].pid), by_rank, unknown
    ):
        by_process[pid] = {rank}
    if any(ranks[place] is None and len(by_process[owners[place].pid]) != 1 for place in calls):
        return None
    for place in calls:
        ranks[place] = ranks[place] if ranks[place] is not None else min(by_process[owners[place].pid])
    given, unclear = give_work(
        calls_by_id(calls, owners, lambda place: ranks[place]),
        [place for place in work if ranks[place] is None],
        owners,
    )
    every = tuple(sorted({rank for rank in ranks if rank is not None}))
    groups: list[tuple[Group, ...]] = []
    latest: dict[
        Any, int
    ] = {}  # of ranks with one process id, others are of the rank before them in the file
    for place, (owner, rank) in enumerate(zip(owners, ranks, strict=True)):
        latest |= {owner.pid: rank} if rank is not None else {}
        of = by_process.get(owner.pid, set())
        known = {latest[owner.pid]} if len(of) > 1 and owner.pid in latest and owner.ph != "M" else of
        groups.append(
            (given[place],)
            if place in given
            else (rank,)
            if rank is not None
            else _others(owner, known, every)
        )
    return _Assignment(groups, ranks={rank: rank for rank in every}, unclear=unclear)


def _by_processes(owners: Sequence[Owner], ranks_in: RanksIn) -> _Assignment | None:
    """Assign events by processes whose names tell ranks, or that give equal correlation ids."""
    calls = calls_by_id(_calls(owners), owners, lambda place: owners[place].pid)
    calls.pop(None, None)
    pids = sorted(calls, key=in_order)
    if len(pids) < 2:
        return None
    names = {owner.pid: str((owner.args or NO_ARGS).name) for owner in owners if owner.name == "process_name"}
    named = ranks_in([names.get(pid, "") for pid in pids])
    is_named = None not in named and len(set(named)) == len(named)
    if not is_named and len({*chain(*calls.values())}) == sum(map(len, calls.values())):
        return None
    ranks = dict(zip(pids, named if is_named else range(len(pids)), strict=True))
    given, unclear = give_work(calls, _work(owners), owners)
    groups = [
        (given[place],) if place in given else _others(owner, {owner.pid} & calls.keys(), tuple(pids))
        for place, owner in enumerate(owners)
    ]
    return _Assignment(groups, ranks=ranks, unclear=unclear, processes=() if is_named else tuple(pids))


def _others(owner: Owner, known: Collection[Any], every: tuple[Group, ...]) -> tuple[Group, ...]:
    """Return the groups of an event that tells none: that of its process, and of all for metadata."""
    if owner.ph == "M":
        return tuple(known) or every
    return tuple(known) if len(known) == 1 else every[:1]


def _rewrite(event: bytes | msgspec.Raw, pid: Any, assigned: _Assignment, *, keep_id: bool) -> dict[str, Any]:
    """Return an event with the process id and the correlation id of its rank; empty if it cannot be read."""
    fields: dict[str, Any] = {}
    with suppress(*UNREADABLE):
        fields = _decode_fields(event)
    with suppress(*UNREADABLE):  # such as a name in another encoding
        fields = fields or _decode_fields(repair(bytes(event)))
    if not fields:  # counted as dropped when the trace was read
        return {}
    changed: dict[str, Any] = {"pid": assigned.pids[pid]} if pid in assigned.pids else {}
    if not keep_id:
        args = _decode_fields(fields["args"])
        changed["args"] = {name: value for name, value in args.items() if name not in _LINKS}
    return {**fields, **changed}
