"""Read traces of graph captures: the launches that were recorded into each graph, with their ops and modules.

A capture lasts from the call `StreamBeginCapture` of a thread to its next `StreamEndCapture`; without such
calls, it is a range named `capture...`. Launches of all threads in that time belong to it, except those with
a device interval: they were executed. HIP records the kernel's name with a launch, CUDA does not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.ingest.kineto.columns import DEVICE_CATEGORIES, HOST_CATEGORIES, compact_json, nanoseconds
from tracekit.ingest.kineto.events import NO_ARGS, Args, Event, decode
from tracekit.ingest.kineto.source import convert_errors, file_name, open_trace, title
from tracekit.ingest.kineto.split import EVENT_LIMIT, chunks, read_opening
from tracekit.ingest.link.replays import Capture, Launch
from tracekit.ingest.link.steps import MODULE_MARKER
from tracekit.runs import redaction
from tracekit.schema import DeviceKind, HostKind
from tracekit.storage import Place

_BEGIN = re.compile(r"(?i)stream_?begin_?capture")
_END = re.compile(r"(?i)stream_?end_?capture")
_KERNEL = re.compile(r"(?i)launch(?!hostfunc)")
_MEMCPY = re.compile(r"(?i)memcpy")
_MEMSET = re.compile(r"(?i)memset")
_RANGE = re.compile(r"(?i)(?:graph_?)?capture")
_KINDS = ((_MEMCPY, DeviceKind.MEMCPY), (_MEMSET, DeviceKind.MEMSET), (_KERNEL, DeviceKind.KERNEL))
JOINED = " > "
"""Separator of the names in a path."""


def read(path: Place) -> list[Capture]:
    """Read the captures of a trace, in order of time.

    Raises:
        UnusableInputError: The file is not a Kineto trace, or nothing was captured in it.

    Example:
        >>> from pathlib import Path
        >>> [len(each.launches) for each in read(Path("capture_rank0.json.gz"))]  # doctest: +SKIP
        [421]
    """
    with convert_errors(path):
        threads, executed = _threads(_events(path))
    captures = _captures(file_name(path), threads, executed)
    if not captures:
        hint = "give the trace that was recorded while the graph was captured"
        raise UnusableInputError(f"{title(path)} has no launches that were recorded into a graph", hint=hint)
    return captures


def _events(path: Place) -> Iterator[list[Event]]:
    """Yield the events of each chunk."""
    with open_trace(path) as stream:
        opening = read_opening(stream, title(path))
        unfinished = b""
        for piece in chunks(stream, opening.rest):
            decoded = decode(unfinished + b"," * bool(unfinished) + bytes(piece.view))
            yield decoded.events
            if decoded.ended:
                return
            unfinished = decoded.tail if len(decoded.tail) <= EVENT_LIMIT else b""


class _Interval(msgspec.Struct, frozen=True, gc=False):
    """A host interval: an op, a module call, a range, or a call that launches or delimits a capture."""

    start: int
    end: int
    kind: HostKind
    name: str
    args: Args

    @property
    def launched(self) -> DeviceKind | None:
        if self.kind is not HostKind.RUNTIME:
            return None
        return next((kind for pattern, kind in _KINDS if pattern.search(self.name)), None)


_Threads = dict[tuple[Any, Any], list[_Interval]]


def _threads(chunks: Iterable[list[Event]]) -> tuple[_Threads, set[Any]]:
    """Return the intervals of interest by thread, and the correlation ids of what was executed."""
    threads: _Threads = defaultdict(list)
    executed: set[Any] = set()
    for events in chunks:
        complete = (event for event in events if event.ph == "X")
        timed = [event for event in complete if type(event.cat) is str and type(event.name) is str]
        ran = [event.args or NO_ARGS for event in timed if event.cat in DEVICE_CATEGORIES]
        executed.update(args.correlation_id for args in ran)
        wanted = [event for event in timed if _is_wanted(HOST_CATEGORIES.get(event.cat), event.name)]
        start, usable = nanoseconds([bytes(event.ts) for event in wanted])
        end = start + np.maximum(nanoseconds([bytes(event.dur) for event in wanted])[0], 0)
        for event, first, last, is_usable in zip(wanted, start.tolist(), end.tolist(), usable, strict=True):
            if is_usable:
                kind, args = HOST_CATEGORIES[event.cat], event.args or NO_ARGS
                threads[event.pid, event.tid].append(_Interval(first, last, kind, event.name, args))
    return threads, executed


def _is_wanted(kind: HostKind | None, name: str) -> bool:
    if kind is HostKind.RUNTIME:
        return any(pattern.search(name) for pattern in (_KERNEL, _MEMCPY, _MEMSET, _BEGIN, _END))
    if kind is HostKind.ANNOTATION:
        return _RANGE.match(name) is not None
    return kind is HostKind.OP or (kind is HostKind.PYTHON and name.startswith(MODULE_MARKER))


class _Placed(msgspec.Struct, frozen=True, gc=False):
    """A launch with the intervals around it, outermost first."""

    kind: DeviceKind
    call: _Interval
    around: tuple[_Interval, ...]


def _captures(name: str, threads: _Threads, executed: set[Any]) -> list[Capture]:
    placed = [launch for intervals in threads.values() for launch in _captured_launches(intervals, executed)]
    placed.sort(key=lambda launch: launch.call.start)
    ranges = [interval for intervals in threads.values() for interval in intervals]
    ranges = [interval for interval in ranges if interval.kind is HostKind.ANNOTATION]
    spans = [span for intervals in threads.values() for span in _capture_spans(intervals)]
    captures = []
    for first, last in sorted(set(spans or [(interval.start, interval.end) for interval in ranges])):
        inside = [launch for launch in placed if first <= launch.call.start < last]
        if inside:
            numbers: dict[int, int] = {}  # op calls are numbered in order of their first launch
            launches = tuple(_launch(launch, numbers) for launch in inside)
            captures.append(Capture(_title(name, ranges, first), launches))
    return captures


def _capture_spans(intervals: list[_Interval]) -> Iterator[tuple[int, int]]:
    """Yield the time between each begin of a capture and its end, on one thread."""
    begun: int | None = None
    for interval in sorted(intervals, key=lambda interval: interval.start):
        if interval.kind is HostKind.RUNTIME and _BEGIN.search(interval.name):
            begun = interval.end
        elif interval.kind is HostKind.RUNTIME and _END.search(interval.name) and begun is not None:
            yield begun, interval.start
            begun = None


def _title(name: str, ranges: list[_Interval], instant: int) -> str:
    """Name the file, and the innermost range at the begin of the capture."""
    around = [interval for interval in ranges if interval.start <= instant < interval.end]
    if not around:
        return name
    return f"{name} ({redaction.redact_text(max(around, key=lambda interval: interval.start).name)})"


def _captured_launches(intervals: list[_Interval], executed: set[Any]) -> Iterator[_Placed]:
    """Yield the launches of a thread that were not executed; a call within a launching call is part of it."""
    open_: list[_Interval] = []
    for interval in sorted(intervals, key=lambda interval: (interval.start, -interval.end)):
        while open_ and open_[-1].end <= interval.start:
            open_.pop()
        kind = interval.launched
        correlation = interval.args.correlation_id
        was_executed = correlation is not None and correlation in executed
        if kind and not was_executed and not any(outer.launched for outer in open_):
            yield _Placed(kind, interval, tuple(open_))
        open_.append(interval)


@lru_cache(maxsize=1 << 14)
def _redacted(text: str) -> str:
    """Redact a text as the reader of replays does."""
    return redaction.redact_texts([text])[0]


def _launch(placed: _Placed, numbers: dict[int, int]) -> Launch:
    around = [interval for interval in placed.around if interval.kind in (HostKind.OP, HostKind.PYTHON)]
    kernel = placed.call.args.kernel
    name = _redacted(kernel) if isinstance(kernel, str) and kernel else None
    module = next((interval for interval in reversed(around) if interval.kind is HostKind.PYTHON), None)
    place = next((place for place in reversed(range(len(around))) if around[place].kind is HostKind.OP), None)
    op = None if place is None else around[place]
    outer = around if place is None else around[:place]
    dims = b"" if op is None else bytes(op.args.dims) or bytes(op.args.dims_old)
    return Launch(
        kind=placed.kind,
        name=name if placed.kind is DeviceKind.KERNEL else None,
        op=None if op is None else _redacted(op.name),
        call=None if op is None else numbers.setdefault(id(op), len(numbers)),
        path=JOINED.join(_redacted(interval.name) for interval in outer) or None,
        module=None if module is None else _redacted(module.name),
        shapes=compact_json(dims).decode() if dims else None,
    )
