"""Convert the decoded events of a chunk to a batch per table, in the order of the file and unlinked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress, filterfalse
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from tracekit import schema
from tracekit.ingest.kineto import columns, flops
from tracekit.ingest.kineto.columns import integers, texts
from tracekit.ingest.kineto.events import NO_ARGS, Args, CounterEvent, Decoded, Event
from tracekit.ingest.spool.rows import Batch, BatchBuilder, Column
from tracekit.ingest.spool.text_columns import EARLIEST_INSTANT_NS, LATEST_NS
from tracekit.schema import C, CopyKind, DeviceKind, HostKind, Memory

COPY_COLUMNS = (C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY)
"""Columns of the parts that `columns.copy_ends` returns."""
_NOWHERE = (None, None, None)
HOST_NUMBERS = (C.CORRELATION_ID, C.SEQUENCE, C.FWD_TID)
DEVICE_NUMBERS = (C.CONTEXT, C.CORRELATION_ID, C.REGISTERS, C.DYNAMIC_SHARED_BYTES)
MEMORY_NUMBERS = (C.ADDRESS, C.TOTAL_ALLOCATED, C.TOTAL_RESERVED)
COLLECTIVE_NUMBERS = (
    *(C.COLLECTIVE_SEQUENCE, C.ELEMENTS_IN, C.ELEMENTS_OUT),
    *(C.GROUP_SIZE, C.SRC_RANK, C.DST_RANK),
)
COLLECTIVE_TEXTS = (
    *(C.COLLECTIVE, C.DTYPE, C.GROUP_NAME, C.GROUP_DESCRIPTION),
    *(C.GROUP_RANKS, C.SPLIT_IN, C.SPLIT_OUT),
)
KERNEL_TEXTS = (C.KERNEL_BACKEND, C.KERNEL_FILE, C.KERNEL_HASH, C.KERNEL_KWARGS)
"""Columns named as the attributes of `Args`: of a table, of a collective, of a generated kernel."""
_GRID = (C.GRID_X, C.GRID_Y, C.GRID_Z)
_BLOCK = (C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z)
_CPU = 0  # c10::DeviceType of the host


class Tally(msgspec.Struct):
    """Counts of unusual events, which add up over chunks."""

    events: int = 0
    repaired: int = 0
    dropped: int = 0
    bad_time: int = 0
    bad_duration: int = 0
    in_args: int = 0
    in_members: int = 0
    uncategorized: int = 0
    ignored: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add another chunk's tally."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def to_batches(decoded: Decoded) -> tuple[dict[str, Batch], Tally]:
    """Sort a chunk's events into tables.

    Returns:
        A batch per table that has rows, columns named as in the schema (times absolute as in the file), and
        the tally.
    """
    counts = {name: getattr(decoded, name) for name in ("repaired", "dropped", "in_args", "in_members")}
    tally = Tally(events=len(decoded.events), **counts)
    device, host, memory = _group_events(decoded.events, tally)
    built = {
        schema.DEVICE_INTERVALS.name: _device(device, tally),
        schema.HOST_INTERVALS.name: _host(host, tally),
        schema.ALLOCATIONS.name: _memory(memory, tally),
        schema.COUNTERS.name: counter_rows(decoded.counters, tally),
    }
    return {name: batch for name, batch in built.items() if batch.rows.count}, tally


_Groups: TypeAlias = dict[Any, list[Event]]
"""Events by kind."""


def _group_events(decoded: list[Event], tally: Tally) -> tuple[_Groups, _Groups, _Groups]:
    """Return the events on devices, those on the host, and those of memory."""
    device: _Groups = defaultdict(list)
    host: _Groups = defaultdict(list)
    memory: list[Event] = []
    for (phase, category), members in _by_category(decoded).items():
        if phase == "X" and category in columns.DEVICE_CATEGORIES:
            device[columns.DEVICE_CATEGORIES[category]] += members
        elif phase == "X" and category == columns.MTIA_DEVICE:
            for event in members:
                device[columns.MTIA_KINDS.get(str(event.name), DeviceKind.KERNEL)].append(event)
        elif phase == "X" and category in columns.HOST_CATEGORIES:
            host[columns.HOST_CATEGORIES[category]] += members
        elif (
            phase == "X" and category is None
        ):  # of torch's legacy autograd profiler, whose processes are words
            tally.uncategorized += sum(not isinstance(event.pid, str) for event in members)
            host[HostKind.OP] += filterfalse(_is_on_legacy_device, members)
            device[DeviceKind.KERNEL] += map(_with_legacy_device, filter(_is_on_legacy_device, members))
        elif phase in ("i", "I"):
            memory += [event for event in members if event.name == columns.MEMORY_EVENT]
        elif phase == "X" and category not in columns.DERIVED_CATEGORIES:
            tally.ignored[str(category)] += len(members)
        elif phase not in columns.KNOWN_PHASES:
            tally.ignored[f"phase {phase}"] += len(members)
    return device, host, {None: memory}


def _is_on_legacy_device(event: Event) -> bool:
    return isinstance(event.pid, str) and event.pid.startswith(columns.LEGACY_DEVICE)


def _with_legacy_device(event: Event) -> Event:
    """Return a kernel with its device, which that profiler writes as thread, in place of the word."""
    if event.pid == columns.LEGACY_DEVICE and (device := _device_of(event.tid)) is not None:
        event.pid, event.tid = device, 0
    return event


def _by_category(decoded: list[Event]) -> dict[tuple[Any, Any], list[Event]]:
    by_category: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    try:
        for event in decoded:
            by_category[event.ph, event.cat].append(event)
    except TypeError:  # a list or an object instead of a string
        for event in decoded:
            event.ph, event.cat = _word(event.ph), _word(event.cat)
        return _by_category(decoded)
    return by_category


def _word(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else "?"


def _select_timed(
    groups: Mapping[Any, list[Event]], tally: Tally, *, earliest: int = 1 - LATEST_NS
) -> tuple[list[Event], list[Any], Column]:
    """Return the events with a time that is not before `earliest`, their kinds and their times."""
    decoded = [event for members in groups.values() for event in members]
    kinds = [kind for kind, members in groups.items() for _ in members]
    start, usable = columns.nanoseconds([event.ts for event in decoded])
    usable = usable & (start >= earliest)
    if not usable.all():
        tally.bad_time += int((~usable).sum())
        decoded, kinds = [*compress(decoded, usable)], [*compress(kinds, usable)]
    return decoded, kinds, Column(start[usable])


def _add_durations(built: BatchBuilder, decoded: Sequence[Event], tally: Tally) -> None:
    """Add durations; absent, negative or unreadable ones are 0, so that the event keeps its links."""
    duration, usable = columns.nanoseconds([event.dur for event in decoded])
    tally.bad_duration += built.durations(duration, (duration < 0) | ~usable)


def _host(groups: Mapping[Any, list[Event]], tally: Tally) -> Batch:
    decoded, kinds, start = _select_timed(groups, tally)
    args = [event.args or NO_ARGS for event in decoded]
    named = _names(decoded)
    built = BatchBuilder(len(decoded))
    built.numbers(C.START_NS, start)
    _add_durations(built, decoded, tally)
    built.texts(
        C.KIND, texts([columns.host_kind(kind, name) for kind, name in zip(kinds, named, strict=True)])
    )
    built.texts(C.NAME, texts(named))
    built.numbers(C.PID, columns.thread_ids([event.pid for event in decoded]))
    built.numbers(C.TID, columns.thread_ids([event.tid for event in decoded]))
    built.numbers(C.EXTERNAL_ID, _external(args))
    _add_numbers(built, args, HOST_NUMBERS)
    built.texts(C.INPUT_SHAPES, columns.json_texts([arg.dims or arg.dims_old for arg in args]))
    built.texts(C.INPUT_DTYPES, columns.json_texts([arg.dtypes for arg in args]))
    built.texts(C.STACK, texts([arg.stack or None for arg in args]))
    built.numbers(C.FLOPS, _flops(named, args))
    _add_metadata(built, args, C.COLLECTIVE, COLLECTIVE_NUMBERS, COLLECTIVE_TEXTS)
    _add_metadata(built, args, C.KERNEL_BACKEND, (), KERNEL_TEXTS)
    return built.build()


def _add_metadata(
    built: BatchBuilder,
    args: Sequence[Args],
    member: str,
    numbers: Sequence[str],
    words: Sequence[str],
) -> None:
    """Add the columns of numbers and of words for the rows whose arguments have a member; few do."""
    if all(getattr(arg, member) is None for arg in args):
        return
    metadata = [NO_ARGS if getattr(arg, member) is None else arg for arg in args]
    _add_numbers(built, metadata, numbers)
    for name in words:
        built.texts(name, texts([getattr(arg, name) for arg in metadata]))


def _add_numbers(built: BatchBuilder, args: Sequence[Args], names: Sequence[str]) -> None:
    for name in names:
        built.numbers(name, integers([*map(attrgetter(name), args)]))


def _names(decoded: Sequence[Event]) -> list[str]:
    return ["" if event.name is None else str(event.name) for event in decoded]


def _flops(named: list[str], args: Sequence[Args]) -> Column:
    return integers(
        [
            flops.count(name, bytes(arg.dims or arg.dims_old), bytes(arg.concrete))
            if name in flops.COUNTED
            else None
            for name, arg in zip(named, args, strict=True)
        ]
    )


def _external(args: Sequence[Args]) -> Column:
    values = [arg.external_id if arg.external_id is not None else arg.external_id_old for arg in args]
    return integers([value or None for value in values])  # 0 is CUPTI's "none"


def _device(groups: Mapping[Any, list[Event]], tally: Tally) -> Batch:
    decoded, kinds, start = _select_timed(groups, tally)
    args = [event.args or NO_ARGS for event in decoded]
    named = _names(decoded)
    both = [*zip(args, decoded, strict=True)]
    built = BatchBuilder(len(decoded))
    built.numbers(C.START_NS, start)
    _add_durations(built, decoded, tally)
    built.texts(C.KIND, texts(kinds))
    built.texts(C.NAME, texts(named))
    built.numbers(C.DEVICE, columns.devices([_first(arg.device, event.pid) for arg, event in both]))
    built.numbers(C.STREAM, columns.thread_ids([_first(arg.stream, event.tid) for arg, event in both]))
    built.numbers(C.EXTERNAL_ID, _external(args))
    _add_numbers(built, args, DEVICE_NUMBERS)
    for axes, sizes in ((_GRID, [arg.grid for arg in args]), (_BLOCK, [arg.block for arg in args])):
        for axis, column in zip(axes, columns.triples(sizes), strict=True):
            built.numbers(axis, column)
    built.numbers(C.OCCUPANCY_PCT, columns.floats([arg.occupancy_pct for arg in args]))
    built.numbers(C.GRAPH_ID, integers([arg.graph_id or None for arg in args]))
    built.numbers(C.GRAPH_NODE_ID, integers([arg.graph_node_id or None for arg in args]))
    sizes = [arg.size if event.cat == columns.MTIA_DEVICE else arg.bytes for arg, event in both]
    built.numbers(C.BYTES, integers(sizes))
    _add_ends(built, named, kinds, both)
    _add_metadata(built, args, C.COLLECTIVE, COLLECTIVE_NUMBERS, COLLECTIVE_TEXTS)
    return built.build()


def _first(value: Any, fallback: Any) -> Any:
    return fallback if value is None else value


def _add_ends(
    built: BatchBuilder, named: list[str], kinds: list[Any], both: list[tuple[Args, Event]]
) -> None:
    """Add the direction and the memory kinds that the names of copies contain, or MTIA's argument."""
    ends = [
        columns.copy_ends(name) if kind is DeviceKind.MEMCPY else _NOWHERE
        for name, kind in zip(named, kinds, strict=True)
    ]
    for row, (arg, event) in enumerate(both):
        if event.cat == columns.MTIA_DEVICE and kinds[row] is DeviceKind.MEMCPY:
            direction = columns.COPY_KINDS.get(str(arg.direction), CopyKind.UNKNOWN)
            ends[row] = (direction, Memory.UNKNOWN, Memory.UNKNOWN)
    for place, column in enumerate(COPY_COLUMNS):
        built.texts(column, texts([parts[place] for parts in ends]))


def _memory(groups: Mapping[Any, list[Event]], tally: Tally) -> Batch:
    decoded, _, time = _select_timed(groups, tally, earliest=EARLIEST_INSTANT_NS)
    args = [event.args or NO_ARGS for event in decoded]
    built = BatchBuilder(len(decoded))
    built.numbers(C.T_NS, time)
    built.numbers(C.PID, columns.thread_ids([event.pid for event in decoded]))
    built.numbers(C.TID, columns.thread_ids([event.tid for event in decoded]))
    device = [
        schema.HOST_DEVICE if arg.device_type in (_CPU, None) else _first(arg.device_id, 0) for arg in args
    ]
    built.numbers(C.DEVICE, columns.devices(device))
    built.numbers(C.BYTES, columns.thread_ids([arg.alloc_bytes for arg in args]))
    _add_numbers(built, args, MEMORY_NUMBERS)
    return built.build()


def counter_rows(counters: list[CounterEvent], tally: Tally) -> Batch:
    """Return a batch of counter samples."""
    if not counters:  # most chunks have none
        return BatchBuilder(0).build()
    samples = [
        (event.ts, f"{event.name}/{key}".removesuffix("/"), value, _device_of(event.pid))
        for event in counters
        if isinstance(event.args, dict)
        for key, value in event.args.items()
        if isinstance(value, int | float)
    ]
    time, usable = columns.nanoseconds([time for time, *_ in samples])
    usable = usable & (time >= EARLIEST_INSTANT_NS)
    tally.bad_time += int((~usable).sum())
    built = BatchBuilder(int(usable.sum()))
    built.numbers(C.T_NS, Column(time[usable]))
    for name, word in ((C.SOURCE, "torch"), (C.UNIT, "")):
        built.texts(name, texts([word] * built.count))
    kept = [*compress(samples, usable)]
    built.numbers(C.DEVICE, integers([device for *_, device in kept]))
    built.texts(C.METRIC, texts([metric for _, metric, *_ in kept]))
    built.numbers(C.VALUE, columns.floats([value for _, _, value, _ in kept]))
    return built.build()


def _device_of(pid: Any) -> int | None:
    """The device that a counter's process id stands for, None for a process."""
    return pid if isinstance(pid, int) and 0 <= pid < columns.MAX_DEVICES else None
