"""One chunk's events as Arrow batches per table, still in file order and unlinked."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.ingest import flops
from tracekit.ingest.arrays import numbers
from tracekit.ingest.kineto import names
from tracekit.ingest.kineto.columns import devices, floats, integers, json_texts, lanes, texts, triples
from tracekit.ingest.kineto.events import NO_ARGS, Args, CounterEvent, Decoded, Event
from tracekit.ingest.kineto.times import nanoseconds
from tracekit.schema import (
    ALLOCATIONS,
    COUNTERS,
    DEVICE_INTERVALS,
    HOST_DEVICE,
    HOST_INTERVALS,
    C,
    DeviceKind,
    HostKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

COPY_COLUMNS = (C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY)
"""What `names.copy_ends` tells of a copy."""
_CPU = 0  # c10::DeviceType of the host


@dataclass
class Tally:
    """What was noticed in some chunks; adds up over them."""

    events: int = 0
    repaired: int = 0
    dropped: int = 0
    bad_time: int = 0
    bad_duration: int = 0
    ignored: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add another chunk's tally."""
        self.events += other.events
        self.repaired += other.repaired
        self.dropped += other.dropped
        self.bad_time += other.bad_time
        self.bad_duration += other.bad_duration
        self.ignored.update(other.ignored)


Batches = dict[str, pa.RecordBatch]


def to_batches(decoded: Decoded) -> tuple[Batches, Tally]:
    """Sort a chunk's events into tables.

    Returns:
        A batch per table that has rows, columns named as in the schema (times absolute as in the file), and
        the tally.
    """
    tally = Tally(events=len(decoded.events), repaired=decoded.repaired, dropped=decoded.dropped)
    groups = _grouped(decoded.events, tally)
    built = {
        DEVICE_INTERVALS.name: _rows(groups.device, _device_columns, tally),
        HOST_INTERVALS.name: _rows(groups.host, _host_columns, tally),
        ALLOCATIONS.name: _rows(groups.memory, _allocation_columns, tally, durations=False),
        COUNTERS.name: counter_rows(decoded.counters, tally),
    }
    return {name: batch for name, batch in built.items() if batch is not None}, tally


@dataclass
class _Groups:
    """Events by the table they go to, each with its kind."""

    device: dict[Any, list[Event]] = field(default_factory=lambda: defaultdict(list))
    host: dict[Any, list[Event]] = field(default_factory=lambda: defaultdict(list))
    memory: dict[Any, list[Event]] = field(default_factory=lambda: defaultdict(list))


def _grouped(events: list[Event], tally: Tally) -> _Groups:
    groups = _Groups()
    for (phase, category), members in _by_category(events).items():
        if phase == "X" and category in names.DEVICE_CATEGORIES:
            groups.device[names.DEVICE_CATEGORIES[category]] += members
        elif phase == "X" and category in names.HOST_CATEGORIES:
            groups.host[names.HOST_CATEGORIES[category]] += members
        elif phase == "X" and category is None:  # the autograd profiler of old
            for event in members:
                legacy = event.pid == names.LEGACY_DEVICE
                (groups.device[DeviceKind.KERNEL] if legacy else groups.host[HostKind.OP]).append(event)
        elif phase in ("i", "I"):
            groups.memory[None] += [event for event in members if event.name == names.MEMORY_EVENT]
        elif phase == "X" and category not in names.DERIVED_CATEGORIES:
            tally.ignored[str(category)] += len(members)
        elif phase not in names.SILENT_PHASES:
            tally.ignored[f"phase {phase}"] += len(members)
    return groups


def _by_category(events: list[Event]) -> dict[tuple[Any, Any], list[Event]]:
    by_category: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    try:
        for event in events:
            by_category[event.ph, event.cat].append(event)
    except TypeError:  # a list or an object where a word should be
        for event in events:
            event.ph, event.cat = _word(event.ph), _word(event.cat)
        return _by_category(events)
    return by_category


def _word(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else "odd"


def _rows(
    groups: Mapping[Any, list[Event]],
    columns: Callable[[Sequence[Event], Sequence[Args], list[Any]], dict[str, pa.Array]],
    tally: Tally,
    *,
    durations: bool = True,
) -> pa.RecordBatch | None:
    events = [event for members in groups.values() for event in members]
    if not events:
        return None
    kinds = [kind for kind, members in groups.items() for _ in members]
    arguments = [event.args or NO_ARGS for event in events]
    start, usable = nanoseconds([event.ts for event in events])
    built = columns(events, arguments, kinds)
    if durations:
        built = {C.START_NS: numbers(start), C.DUR_NS: numbers(_durations(events, usable, tally)), **built}
    else:
        built = {C.T_NS: numbers(start), **built}
    batch = pa.RecordBatch.from_pydict(built)
    if usable.all():
        return batch
    tally.bad_time += int((~usable).sum())
    return batch.filter(pa.array(usable))


def _durations(events: Sequence[Event], usable: np.ndarray[Any, Any], tally: Tally) -> np.ndarray[Any, Any]:
    """Durations; an absent, negative or unreadable one becomes 0, so that the event keeps its links."""
    duration, known = nanoseconds([event.dur for event in events])
    bad = (duration < 0) | ~known
    tally.bad_duration += int((bad & usable).sum())
    return np.where(bad, 0, duration)


def _host_columns(events: Sequence[Event], args: Sequence[Args], kinds: list[Any]) -> dict[str, pa.Array]:
    named = [event.name if type(event.name) is str else _name(event) for event in events]
    return {
        C.KIND: texts([names.host_kind(kind, name) for kind, name in zip(kinds, named, strict=True)]),
        C.NAME: texts(named),
        C.PID: lanes([event.pid for event in events]),
        C.TID: lanes([event.tid for event in events]),
        C.CORRELATION_ID: integers([arg.correlation for arg in args]),
        C.EXTERNAL_ID: _external(args),
        C.SEQUENCE: integers([arg.sequence for arg in args]),
        C.FWD_TID: integers([arg.fwd_tid for arg in args]),
        C.INPUT_SHAPES: json_texts([arg.dims or arg.dims_old for arg in args]),
        C.INPUT_DTYPES: json_texts([arg.dtypes for arg in args]),
        C.STACK: texts([arg.stack or None for arg in args]),
        C.FLOPS: _flops(named, args),
    }


def _flops(named: list[str], args: Sequence[Args]) -> pa.Array:
    return integers(
        [
            flops.count(name, bytes(arg.dims or arg.dims_old), bytes(arg.concrete))
            if name in flops.COUNTED
            else None
            for name, arg in zip(named, args, strict=True)
        ]
    )


def _name(event: Event) -> str:
    return "" if event.name is None else str(event.name)


def _external(args: Sequence[Args]) -> pa.Array:
    values = [arg.external_id if arg.external_id is not None else arg.external_id_old for arg in args]
    return integers([value or None for value in values])  # 0 is CUPTI's "none"


def _device_columns(events: Sequence[Event], args: Sequence[Args], kinds: list[Any]) -> dict[str, pa.Array]:
    named = [event.name if type(event.name) is str else _name(event) for event in events]
    grid = triples([arg.grid for arg in args])
    block = triples([arg.block for arg in args])
    return {
        C.KIND: texts(kinds),
        C.NAME: texts(named),
        C.DEVICE: devices([_first(arg.device, event.pid) for arg, event in zip(args, events, strict=True)]),
        C.STREAM: lanes([_first(arg.stream, event.tid) for arg, event in zip(args, events, strict=True)]),
        C.CONTEXT: integers([arg.context for arg in args]),
        C.CORRELATION_ID: integers([arg.correlation for arg in args]),
        C.EXTERNAL_ID: _external(args),
        **dict(zip((C.GRID_X, C.GRID_Y, C.GRID_Z), grid, strict=True)),
        **dict(zip((C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z), block, strict=True)),
        C.REGISTERS: integers([arg.registers for arg in args]),
        C.DYNAMIC_SHARED_BYTES: integers([arg.shared for arg in args]),
        C.OCCUPANCY_PCT: floats([arg.occupancy for arg in args]),
        C.GRAPH_ID: integers([arg.graph_id or None for arg in args]),
        C.GRAPH_NODE_ID: integers([arg.graph_node_id or None for arg in args]),
        C.BYTES: integers([arg.bytes for arg in args]),
        **_copies(named, kinds),
    }


def _first(value: Any, fallback: Any) -> Any:
    return fallback if value is None else value


def _copies(named: list[str], kinds: list[Any]) -> dict[str, pa.Array]:
    nowhere = (None, None, None)
    copy = names.DEVICE_CATEGORIES["gpu_memcpy"]
    ends = [
        names.copy_ends(name) if kind is copy else nowhere for name, kind in zip(named, kinds, strict=True)
    ]
    columns = zip(*ends, strict=True)
    return {name: texts(list(column)) for name, column in zip(COPY_COLUMNS, columns, strict=True)}


def _allocation_columns(
    events: Sequence[Event], args: Sequence[Args], _kinds: list[Any]
) -> dict[str, pa.Array]:
    return {
        C.PID: lanes([event.pid for event in events]),
        C.TID: lanes([event.tid for event in events]),
        C.DEVICE: devices([_memory_device(arg) for arg in args]),
        C.BYTES: lanes([arg.alloc_bytes for arg in args]),
        C.ADDRESS: integers([arg.address for arg in args]),
        C.TOTAL_ALLOCATED: integers([arg.total_allocated for arg in args]),
        C.TOTAL_RESERVED: integers([arg.total_reserved for arg in args]),
    }


def _memory_device(arg: Args) -> Any:
    return HOST_DEVICE if arg.device_type in (_CPU, None) else _first(arg.device_id, 0)


def counter_rows(counters: list[CounterEvent], tally: Tally) -> pa.RecordBatch | None:
    """A batch of samples; None without any."""
    samples = [
        (event.ts, f"{event.name}/{key}", value)
        for event in counters
        if isinstance(event.args, dict)
        for key, value in event.args.items()
        if isinstance(value, int | float)
    ]
    if not samples:
        return None
    times, metrics, values = zip(*samples, strict=True)
    start, usable = nanoseconds(times)
    tally.bad_time += int((~usable).sum())
    batch = pa.RecordBatch.from_pydict(
        {
            C.T_NS: numbers(start),
            C.SOURCE: texts(["torch"] * len(start)),
            C.METRIC: texts(metrics),
            C.UNIT: texts([""] * len(start)),
            C.VALUE: floats(values),
        }
    )
    return batch if usable.all() else batch.filter(pa.array(usable))
