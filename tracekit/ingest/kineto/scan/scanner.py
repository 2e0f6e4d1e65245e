"""Scan chunks with the compiled code, and convert its rows to the batches that the reference decoder makes.

A `Scanner` belongs to one thread. It refuses a chunk with anything that only the reference decoder supports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.ingest.kineto import batches, columns, flops
from tracekit.ingest.kineto.batches import Tally
from tracekit.ingest.kineto.columns import compact_json, fitting_devices
from tracekit.ingest.kineto.events import decode_counters
from tracekit.ingest.kineto.scan import layout, native
from tracekit.ingest.kineto.scan.layout import DEVICE_KINDS, HOST_KINDS, NULL, Interner, RowBuffers
from tracekit.ingest.kineto.split import Text
from tracekit.ingest.spool.rows import NONE, Batch, BatchBuilder, Column, Ints, Words, concatenate_batches
from tracekit.ingest.spool.text_columns import EARLIEST_INSTANT_NS
from tracekit.schema import ALLOCATIONS, COUNTERS, DEVICE_INTERVALS, HOST_INTERVALS, C, DeviceKind, HostKind

Batches = dict[str, Batch]

_NOT_ASCII = 0x80
_HEADROOM = 8  # buffers are this fraction of a text longer than it, so that the next text may be longer
_REALS = {C.OCCUPANCY_PCT}
_NEVER_NULL = {C.DEVICE, C.PID, C.START_NS, C.T_NS, C.TID}
"""Columns for which the compiled code fills in a value where the event has none."""
_MEMCPY = DEVICE_KINDS.index(DeviceKind.MEMCPY)
_count_flops = lru_cache(1 << 12)(flops.count)  # the same calls occur in chunk after chunk


class UnsupportedError(Exception):
    """A chunk contains something that only the reference decoder supports."""


class Scanned(msgspec.Struct, frozen=True):
    """Rows of a chunk.

    Attributes:
        batches: A batch for each table that has rows; the scanner's next scan reuses their memory.
        tally: Counts of events and of defects.
        closed: Position of the bracket that closes the events; None when it is not in the chunk.
    """

    batches: Batches
    tally: Tally
    closed: int | None


class Scanner:
    """Scan chunk after chunk; strings are interned and decoded once for all of them."""

    def __init__(self) -> None:
        self._code = native.load()
        self._scratch = np.empty(layout.SCRATCH, np.int64)
        self._buffers: RowBuffers | None = None
        self._reset_strings()

    def _reset_strings(self) -> None:
        self._interner = Interner(layout.PRESET_STRINGS, self._code.code_of)
        self._strings = Strings(self._interner, self._code)

    def scan(self, text: Text) -> Scanned | None:
        """Scan a chunk; return None if the reference decoder must decode it."""
        if not _is_utf8(text):
            return None
        try:
            return self._scan(text)
        except UnsupportedError:
            return None

    def _scan(self, text: Text) -> Scanned | None:
        if self._buffers is None or self._buffers.length < text.length:
            self._buffers = RowBuffers(text.length + text.length // _HEADROOM)
        buffers = self._buffers
        address = np.frombuffer(text.buffer, np.uint8).ctypes.data
        pieces: list[Batches] = []
        tally, start, is_reset = Tally(), 0, False
        while True:
            buffers.clear()
            end = self._code.scan(
                address,
                text.length,
                start,
                self._interner.address,
                buffers.address,
                self._scratch.ctypes.data,
            )
            position = buffers.count(layout.POSITION)
            if end == layout.UNSUPPORTED or (end == layout.NO_SPACE and position == start and is_reset):
                return None
            pieces.append(_batches(buffers, self._strings, text.view, tally))
            if end != layout.NO_SPACE:
                tables = dict.fromkeys(name for batches in pieces for name in batches)
                joined = {
                    name: concatenate_batches([batches[name] for batches in pieces if name in batches])
                    for name in tables
                }
                return Scanned(joined, tally, position if end == layout.CLOSED else None)
            start, is_reset = position, True
            self._reset_strings()
            buffers = self._buffers = RowBuffers(text.length)  # the batches found so far use the old ones


def _is_utf8(text: Text) -> bool:
    try:
        is_ascii = np.frombuffer(text.view, np.uint8).max(initial=0) < _NOT_ASCII
        return bool(is_ascii) or str(text.view, "utf-8") is not None
    except UnicodeDecodeError:
        return False


class _CodeMap:
    """Map codes to values that are computed once, at first use."""

    def __init__(self, compute: Callable[[int], Any], dtype: type[np.generic]) -> None:
        self._compute = compute
        self._values = np.empty(0, dtype)
        self._computed = np.empty(0, np.bool_)

    def of(self, codes: Ints) -> npt.NDArray[Any]:
        """Values of some codes."""
        missing = int(codes.max(initial=-1)) + 1 - len(self._computed)
        if missing > 0:
            more = missing + len(self._computed)
            self._values = np.append(self._values, np.empty(more, self._values.dtype))
            self._computed = np.append(self._computed, np.zeros(more, np.bool_))
        for code in codes[~self._computed[codes]].tolist():
            self._values[code] = self._compute(code)
        self._computed[codes] = True
        return self._values[codes]


class Strings:
    """Decode the strings of an interner, each once.

    Attributes:
        decoded: The strings.
        encoded: The same in UTF-8, as they are stored.
        fragments: JSON, written compactly, in UTF-8.
        escaped: Whether a string is written with escapes.
        kinds: For each host kind that a name can refine, the index in `HOST_KINDS` of the refined kind.
    """

    def __init__(self, interner: Interner, code: native.Code) -> None:
        self._interner, self._code = interner, code
        self._raw: list[bytes] = []  # strings read from the interner so far, by code
        self._latest = np.full(layout.MAX_STRINGS, NONE)
        self.decoded = _CodeMap(lambda code: _decode(self.raw(code)), np.object_)
        self.encoded = _CodeMap(lambda code: _decode(self.raw(code)).encode(), np.object_)
        self.fragments = _CodeMap(lambda code: compact_json(self.raw(code)), np.object_)
        self.escaped = _CodeMap(lambda code: b"\\" in self.raw(code), np.bool_)
        self.kinds = {kind: _CodeMap(partial(self._kind, kind), np.int64) for kind in columns.NAMED_KINDS}

    def _kind(self, kind: HostKind, code: int) -> int:
        return HOST_KINDS.index(columns.host_kind(kind, _decode(self.raw(code))))

    def distinct(self, codes: Ints) -> tuple[Ints, Ints]:
        """Find the distinct codes in order of occurrence, and each row's index among them, -1 for none."""
        codes = np.ascontiguousarray(codes)
        index, codes_found = np.empty_like(codes), np.empty_like(codes)
        addresses = [column.ctypes.data for column in (codes, index, codes_found, self._latest)]
        count = self._code.distinct(len(codes), *addresses)
        return codes_found[:count], index

    @property
    def count(self) -> int:
        """Number of codes."""
        return self._interner.count

    def raw(self, code: int) -> bytes:
        """The string as it is written in the file; empty for code -1."""
        if code >= len(self._raw):
            self._raw += self._interner.since(len(self._raw))
        return self._raw[code] if code >= 0 else b""


def _decode(raw: bytes) -> str:
    text: str = msgspec.json.decode(b'"' + raw + b'"') if b"\\" in raw else raw.decode()
    return text


def _batches(buffers: RowBuffers, strings: Strings, text: memoryview, tally: Tally) -> Batches:
    """Build a batch for each table that has rows, and add the scan's counts to the tally."""
    tally.events += buffers.count(layout.N_EVENTS)
    tally.bad_duration += buffers.count(layout.N_BAD_DURATION)
    unknown = np.bincount(buffers.rows(layout.UNKNOWN, layout.N_UNKNOWN)[0])
    codes = np.flatnonzero(unknown)
    tally.ignored += Counter(dict(zip(strings.decoded.of(codes), unknown[codes].tolist(), strict=True)))
    built = {
        DEVICE_INTERVALS.name: _device_batch(buffers, strings),
        HOST_INTERVALS.name: _host_batch(buffers, strings),
        ALLOCATIONS.name: _memory_batch(buffers),
        COUNTERS.name: _counter_batch(buffers, text, tally),
    }
    return {name: batch for name, batch in built.items() if batch.rows.count}


def _add_columns(built: BatchBuilder, columns: Mapping[str, int], rows: Ints) -> None:
    """Add the columns that a buffer begins with."""
    for name, values in zip(columns, rows, strict=False):
        if name == C.DUR_NS:
            built.durations(values, values < 0)
        elif name in _NEVER_NULL:
            built.numbers(name, Column(fitting_devices(values) if name == C.DEVICE else values))
        else:
            _add_nullable(built, name, values)


def _add_nullable(built: BatchBuilder, name: str, values: Ints) -> None:
    """Add a column of which `NULL` is absent; real numbers are given as integers of the same bits."""
    built.numbers(name, Column(values.view(np.float64) if name in _REALS else values, values == NULL))


def _host_batch(buffers: RowBuffers, strings: Strings) -> Batch:
    rows = buffers.rows(layout.HOST, layout.N_HOST)
    string_rows = buffers.rows(layout.HOST_STRINGS, layout.N_HOST)
    codes = dict(zip(layout.HOST_STRING_COLUMNS, string_rows, strict=True))
    distinct, index = strings.distinct(codes[C.NAME])
    escaped = distinct[strings.escaped.of(distinct)]
    # The code of an op whose name has escapes is not the preset one of the ops whose work is counted.
    if len(escaped) and not flops.COUNTED.isdisjoint(strings.decoded.of(escaped)):
        raise UnsupportedError
    kinds = rows[-1].copy()
    for kind, refined in strings.kinds.items():
        of_kind = np.flatnonzero(kinds == HOST_KINDS.index(kind))
        named, place = strings.distinct(codes[C.NAME][of_kind])
        kinds[of_kind] = refined.of(named)[place]
    built = BatchBuilder(rows.shape[1])
    _add_columns(built, layout.HOST_COLUMNS, rows)
    built.texts(C.KIND, _kind_names(kinds, HOST_KINDS, strings))
    built.texts(C.NAME, (index, strings.encoded.of(distinct)))
    for name in (C.INPUT_SHAPES, C.INPUT_DTYPES):
        distinct, index = strings.distinct(codes[name])
        built.texts(name, (index, strings.fragments.of(distinct)))
    built.texts(C.STACK, _stacks(codes[C.STACK], strings))
    _add_nullable(built, C.FLOPS, _flops(codes[C.NAME], codes[C.INPUT_SHAPES], codes[C.FLOPS], strings))
    metadata = buffers.rows(layout.COLLECTIVES, layout.N_COLLECTIVES)
    _add_metadata(built, metadata, batches.COLLECTIVE_NUMBERS, batches.COLLECTIVE_TEXTS, strings)
    _add_metadata(
        built, buffers.rows(layout.GENERATED, layout.N_GENERATED), (), batches.KERNEL_TEXTS, strings
    )
    return built.build()


def _add_metadata(
    built: BatchBuilder, metadata: Ints, numbers: Sequence[str], words: Sequence[str], strings: Strings
) -> None:
    """Add metadata that few rows have: numbers, then texts; its first row says which rows have it."""
    rows, *columns = metadata
    if not len(rows):
        return
    for name, values in zip(numbers, columns, strict=False):
        _add_nullable(built, name, _spread(values, rows, built.count, NULL))
    for name, values in zip(words, columns[len(numbers) :], strict=True):
        distinct, index = strings.distinct(_spread(values, rows, built.count, NONE))
        built.texts(name, (index, strings.encoded.of(distinct)))


def _spread(values: Ints, rows: Ints, count: int, absent: int) -> Ints:
    """Values of all rows, of which some are given."""
    column = np.full(count, absent, np.int64)
    column[rows] = values
    return column


def _kind_names(numbers: Ints, kinds: tuple[str, ...], strings: Strings) -> Words:
    distinct, index = strings.distinct(numbers)
    return index, [kinds[number].encode() for number in distinct]


def _stacks(codes: Ints, strings: Strings) -> Words:
    distinct, index = strings.distinct(codes)
    stacks = strings.encoded.of(distinct)
    empty = stacks == b""
    if not empty.any():
        return index, stacks
    renumbered = np.append(np.where(empty, NONE, np.cumsum(~empty) - 1), NONE)  # the last for no stack at all
    return renumbered[index], stacks[~empty]


def _flops(name: Ints, shapes: Ints, values: Ints, strings: Strings) -> Ints:
    work = np.full(len(name), NULL)
    counted = np.flatnonzero(name < layout.N_COUNTED)
    codes = [column[counted] + 1 for column in (name, shapes, values)]  # none is 0
    sizes = (layout.N_COUNTED + 1, strings.count + 1, strings.count + 1)
    calls, call = np.unique(np.ravel_multi_index(codes, sizes), return_inverse=True)
    work_of_calls = []
    for codes_of_call in np.transpose(np.unravel_index(calls, sizes)).tolist():
        op, dims, concrete = (strings.raw(code - 1) for code in codes_of_call)
        count = _count_flops(op.decode(), dims, concrete)
        work_of_calls.append(NULL if count is None else count)
    work[counted] = np.array(work_of_calls, np.int64)[call]
    return work


def _device_batch(buffers: RowBuffers, strings: Strings) -> Batch:
    rows = buffers.rows(layout.DEVICE, layout.N_DEVICE)
    distinct, index = strings.distinct(buffers.rows(layout.DEVICE_STRINGS, layout.N_DEVICE)[0])
    built = BatchBuilder(rows.shape[1])
    _add_columns(built, layout.DEVICE_COLUMNS, rows)
    built.texts(C.KIND, _kind_names(rows[-1], DEVICE_KINDS, strings))
    built.texts(C.NAME, (index, strings.encoded.of(distinct)))
    copied, copy = strings.distinct(np.where(rows[-1] == _MEMCPY, index, NONE))
    ends = [columns.copy_ends(name) for name in strings.decoded.of(distinct[copied])]
    for number, column in enumerate(batches.COPY_COLUMNS):
        built.texts(column, (copy, [str(parts[number]).encode() for parts in ends]))
    metadata = buffers.rows(layout.OF_KERNELS, layout.N_OF_KERNELS)
    _add_metadata(built, metadata, batches.COLLECTIVE_NUMBERS, batches.COLLECTIVE_TEXTS, strings)
    return built.build()


def _memory_batch(buffers: RowBuffers) -> Batch:
    rows = buffers.rows(layout.MEMORY, layout.N_MEMORY)
    if (rows[[*layout.MEMORY_COLUMNS].index(C.T_NS)] < EARLIEST_INSTANT_NS).any():
        raise UnsupportedError
    built = BatchBuilder(rows.shape[1])
    _add_columns(built, layout.MEMORY_COLUMNS, rows)
    return built.build()


def _counter_batch(buffers: RowBuffers, text: memoryview, tally: Tally) -> Batch:
    bounds = buffers.rows(layout.COUNTERS, layout.N_COUNTERS).T.tolist()
    events = decode_counters(b",".join(bytes(text[start:end]) for start, end in bounds))
    return batches.counter_rows(events, tally)
