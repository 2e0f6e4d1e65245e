"""Reference decoder of the events of a chunk: decodes all valid events, and repairs or drops damaged ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from tracekit.ingest.kineto.split import (
    EVENT_MARK,
    Pieces,
    closes_events,
    likely_events,
    repair,
    take_apart,
)
from tracekit.ingest.link.trace import TopLevel
from tracekit.ingest.spool.text_columns import LATEST_NS, MAX_RANKS, MAX_REPAIRED_BYTES

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that decoding raises on damaged or deeply nested text."""

_NONE = msgspec.Raw(b"")
_SHOWN = 200
"""Bytes of a damaged event that are kept, to find its place."""
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")


class Args(msgspec.Struct, gc=False):
    """Arguments of an event that are read, under all names that they have had."""

    external_id: Any = msgspec.field(default=None, name="External id")
    external_id_old: Any = msgspec.field(default=None, name="external id")
    correlation_id: Any = msgspec.field(default=None, name="correlation")
    device: Any = None
    stream: Any = None
    context: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    dynamic_shared_bytes: Any = msgspec.field(default=None, name="shared memory")
    occupancy_pct: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    graph_id: Any = msgspec.field(default=None, name="graph id")
    graph_node_id: Any = msgspec.field(default=None, name="graph node id")
    bytes: Any = None
    size: Any = None
    direction: Any = None
    dims: msgspec.Raw = msgspec.field(default=_NONE, name="Input Dims")
    dims_old: msgspec.Raw = msgspec.field(default=_NONE, name="Input dims")
    dtypes: msgspec.Raw = msgspec.field(default=_NONE, name="Input type")
    concrete: msgspec.Raw = msgspec.field(default=_NONE, name="Concrete Inputs")
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    fwd_tid: Any = msgspec.field(default=None, name="Fwd thread id")
    stack: Any = msgspec.field(default=None, name="Call stack")
    alloc_bytes: Any = msgspec.field(default=None, name="Bytes")
    address: Any = msgspec.field(default=None, name="Addr")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    total_allocated: Any = msgspec.field(default=None, name="Total Allocated")
    total_reserved: Any = msgspec.field(default=None, name="Total Reserved")
    collective: Any = msgspec.field(default=None, name="Collective name")
    collective_sequence: Any = msgspec.field(default=None, name="Seq")
    dtype: Any = None
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Any = msgspec.field(default=None, name="Group size")
    split_in: Any = msgspec.field(default=None, name="In split size")
    split_out: Any = msgspec.field(default=None, name="Out split size")
    src_rank: Any = msgspec.field(default=None, name="Src Rank")
    dst_rank: Any = msgspec.field(default=None, name="Dst Rank")
    kernel_backend: Any = None
    kernel_file: Any = None
    kernel_hash: Any = None
    kernel_kwargs: Any = None
    kernel: Any = None


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """A trace event; times are text, which `columns.nanoseconds` parses exactly."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _NONE
    dur: msgspec.Raw = _NONE
    args: Args | None = None


class CounterEvent(msgspec.Struct, gc=False):
    """A counter sample; its arguments are values by name."""

    ph: Any = None
    name: Any = None
    pid: Any = None
    ts: msgspec.Raw = _NONE
    args: Any = None


class Decoded(msgspec.Struct):
    """Decoded events of a chunk.

    Attributes:
        events: The decoded events.
        counters: Those of phase C, with their values.
        clean: Whether the whole chunk was valid JSON.
        ended: Whether the closing bracket of the events was in this chunk; `tail` follows it.
        tail: Text after the last complete event.
        repaired: Number of events decoded after a repair.
        dropped: Number of events that could not be decoded.
        damaged: Begin of the text of the first of these.
        in_args: Number of events in the arguments of others.
        in_members: Number of events in other members of others.
        around: Text of the first event with others in it.
    """

    events: list[Event] = msgspec.field(default_factory=list)
    counters: list[CounterEvent] = msgspec.field(default_factory=list)
    clean: bool = False
    ended: bool = False
    tail: bytes = b""
    repaired: int = 0
    dropped: int = 0
    damaged: bytes = b""
    in_args: int = 0
    in_members: int = 0
    around: bytes = b""

    def drop(self, text: bytes) -> None:
        """Count an event that cannot be decoded."""
        self.dropped += 1
        self.damaged = self.damaged or text[:_SHOWN]

    def add(self, pieces: Pieces) -> None:
        """Decode events one by one, repair them if necessary, or count them as dropped."""
        self.tail, self.ended = pieces.tail, pieces.ended
        self.repaired += pieces.gaps
        for text in pieces.events:
            try:
                self._add_event(text)
            except UNREADABLE:
                self._add_repaired(text)
            if _may_hold_others(text, self.events[-1:]):
                self.count_others([text])

    def count_others(self, events: Iterable[bytes | msgspec.Raw]) -> None:
        """Count the events that are inside of some events."""
        for event in events:
            in_args, in_members = _count_others(bytes(event))
            self.in_args += in_args
            self.in_members += in_members
            if in_args + in_members:
                self.around = self.around or bytes(event)

    def _add_event(self, text: bytes) -> None:
        event = _decode_event(text)
        self.counters += _counters_of([event], text)
        self.events.append(event)

    def _add_repaired(self, damaged: bytes) -> None:
        text = repair(damaged)
        try:
            try:
                self._add_event(text)
            except msgspec.ValidationError:  # the arguments are not an object, all that an event must have
                fields = _decode_any(text)
                fields.pop("args", None)
                self._add_event(msgspec.json.encode(fields))
            self.repaired += 1
        except UNREADABLE:
            self.drop(damaged)


_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_samples = msgspec.json.Decoder(list[CounterEvent]).decode
_decode_any = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_texts = msgspec.json.Decoder(list[msgspec.Raw]).decode


def decode(text: bytes) -> Decoded:
    """Decode a chunk: comma-separated events, possibly followed by the end of the trace.

    Example:
        >>> decode(b'{"ph": "X", "name": "a"}], "traceName": 1}').tail
        b'], "traceName": 1}'
    """
    try:
        return _decode_whole(text)
    except msgspec.DecodeError as error:
        if match := _TRAILING.search(str(error)):
            trailing = int(match[1]) - 2  # one-based, after the bracket that was prepended
            return _decode_last(text, text.rfind(b"]", 0, trailing))
        return _decode_damaged(text)
    except (UnicodeDecodeError, RecursionError):
        return _decode_damaged(text)


def _decode_whole(text: bytes) -> Decoded:
    events = _decode_events(b"[" + text + b"]")
    decoded = Decoded(events, _counters_of(events, text), clean=True)
    if _may_hold_others(text, events):
        decoded.count_others(_decode_texts(b"[" + text + b"]"))
    return decoded


def _may_hold_others(text: bytes, events: list[Event]) -> bool:
    """Whether a text may have events inside of its events; few do, and counting them takes long."""
    return text.count(b'"ph"') > sum(event.ph is not None for event in events)


def _count_others(event: bytes) -> tuple[int, int]:
    """Count the events in the arguments of an event, and in its other members.

    Example:
        >>> _count_others(b'{"ph": "X", "args": {"ph": "X", "kept": [{"ph": "X"}]}, "children": {"ph": "i"}}')
        (1, 1)
    """
    fields = _fields(event) or _fields(repair(event)) or {}
    args = bytes(fields.pop("args", _NONE))
    members = _fields(args)
    in_args = [args] if members is None else members.values()
    return _count_marks(in_args), _count_marks(fields.values())


def _count_marks(values: Iterable[bytes | msgspec.Raw]) -> int:
    return sum(len(EVENT_MARK.findall(bytes(value))) for value in values)


def _decode_last(text: bytes, end: int) -> Decoded:
    try:
        if not closes_events(text, end):
            return _decode_damaged(text)
        decoded = _decode_whole(text[:end])
    except UNREADABLE:
        return _decode_damaged(text)
    return msgspec.structs.replace(decoded, clean=False, ended=True, tail=text[end:])


def _counters_of(events: list[Event], text: bytes) -> list[CounterEvent]:
    if not any(event.ph == "C" for event in events):
        return []
    return [event for event in decode_counters(text) if event.ph == "C"]


def decode_counters(text: bytes) -> list[CounterEvent]:
    """Decode comma-separated events as samples of counters."""
    return _decode_samples(b"[" + text + b"]")


def _decode_damaged(text: bytes) -> Decoded:
    decoded = Decoded()
    decoded.add(take_apart(text))
    return decoded


def salvage(text: bytes) -> Decoded:
    """Decode text with unbalanced braces: each likely event separately.

    An unfinished last event is returned as the tail, and not counted as dropped.

    Example:
        >>> salvage(b'{"ph": "X", "args": {, {"ph": "i"}, {"ph": "X", "name": ').dropped
        1
    """
    decoded = Decoded()
    for piece in likely_events(text):
        if decoded.tail:
            decoded.drop(decoded.tail)
        decoded.add(take_apart(piece))
        if decoded.ended:
            break
    return decoded


def top_level(header: bytes, after: bytes) -> TopLevel:
    """Decode the top level; members of unexpected types are ignored.

    Args:
        header: Text up to the bracket that opens the events.
        after: Text from the bracket that closes them; may be truncated or empty.

    Example:
        >>> top_level(b'{"traceEvents": [', b'], "baseTimeNanoseconds": 7}').base_ns
        7
    """
    if not header.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return TopLevel()
    for text in (header + (after or b"]}"), header + b"]}"):
        fields = _fields(text)
        if fields is None and len(text) <= MAX_REPAIRED_BYTES:
            fields = _fields(repair(text))
        if fields is not None:
            return _known_fields(fields)
    return TopLevel()


def value_end(header: bytes, after: bytes) -> int:
    """Return where the top-level value ends in the text after the events: its length if nothing follows.

    Example:
        >>> value_end(b'{"traceEvents": [', b"]} {}")
        3
    """
    try:
        msgspec.json.decode(header + after, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        if match := _TRAILING.search(str(error)):
            return int(match[1]) - 1 - len(header)
    except (UnicodeDecodeError, RecursionError):
        pass
    return len(after)


def _fields(text: bytes) -> dict[str, msgspec.Raw] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return None


def _known_fields(fields: dict[str, msgspec.Raw]) -> TopLevel:
    """Return the top level without fields of unexpected types, and without times and ranks beyond limits."""
    values = {}
    for spec in msgspec.structs.fields(TopLevel):
        raw = fields.get(spec.encode_name)
        if raw is not None:
            with suppress(*UNREADABLE):
                values[spec.name] = msgspec.json.decode(raw, type=spec.type, strict=False)
    top = TopLevel(**values)
    if not 0 <= top.base_ns < LATEST_NS:
        top.base_ns = 0
    if top.distributed and not 0 <= (top.distributed.rank or 0) < MAX_RANKS:
        top.distributed = None
    return top
