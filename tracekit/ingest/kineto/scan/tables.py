"""The rows of a scan as the batches that the reference decoder makes of the same events."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tracekit.ingest import flops
from tracekit.ingest.kineto import names
from tracekit.ingest.kineto.batches import COPY_COLUMNS, counter_rows
from tracekit.ingest.kineto.building import Building
from tracekit.ingest.kineto.columns import fitting_devices
from tracekit.ingest.kineto.events import decode_counters
from tracekit.ingest.kineto.scan import layout, sheets
from tracekit.ingest.rows import NONE, Column
from tracekit.schema import ALLOCATIONS, COUNTERS, DEVICE_INTERVALS, HOST_INTERVALS, C, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tracekit.ingest.kineto.batches import Tally
    from tracekit.ingest.kineto.columns import Words
    from tracekit.ingest.kineto.scan.sheets import Sheets
    from tracekit.ingest.kineto.scan.texts import Ints, Texts
    from tracekit.ingest.rows import Batch

    Objects = npt.NDArray[np.object_]

_count = lru_cache(1 << 12)(flops.count)  # chunk after chunk has the same calls
_REALS = {C.OCCUPANCY_PCT}
_ALWAYS = {C.DEVICE, C.DUR_NS, C.PID, C.START_NS, C.T_NS, C.TID}
"""Columns that every row has a value of: the scan gives one where the event has none."""
_COPY = layout.DEVICE_KINDS.index(DeviceKind.MEMCPY)


class SurpriseError(Exception):
    """Something that only the reference decoder handles."""


def batches(filled: Sheets, texts: Texts, text: memoryview, tally: Tally) -> dict[str, Batch]:
    """A batch for each table that has rows; what was noticed is added to the tally.

    Raises:
        SurpriseError: A name means something that the scan did not see.
    """
    tally.events += filled.count(sheets.N_EVENTS)
    tally.bad_duration += filled.count(sheets.N_BAD_DURATION)
    tally.ignored += _ignored(filled, texts)
    built = {
        DEVICE_INTERVALS.name: _device(filled, texts),
        HOST_INTERVALS.name: _host(filled, texts),
        ALLOCATIONS.name: _memory(filled),
        COUNTERS.name: _counters(filled, text, tally),
    }
    return {name: batch for name, batch in built.items() if batch.rows.count}


def _ignored(filled: Sheets, texts: Texts) -> Counter[str]:
    count = np.bincount(filled.rows(sheets.UNKNOWN, sheets.N_UNKNOWN)[0])
    codes = np.flatnonzero(count)
    return Counter(dict(zip(texts.strings.of(codes), count[codes].tolist(), strict=True)))


def _add_table(built: Building, layout_of: Mapping[str, int], rows: Ints) -> None:
    """Add the columns that a sheet begins with."""
    for name, values in zip(layout_of, rows, strict=False):
        if name in _ALWAYS:
            built.numbers(name, Column(fitting_devices(values) if name == C.DEVICE else values))
        else:
            _add(built, name, values)


def _add(built: Building, name: str, values: Ints) -> None:
    """Add numbers, given as integers of the same bits; `NULL` where one is missing."""
    built.numbers(name, Column(values.view(np.float64) if name in _REALS else values, values == layout.NULL))


def _host(filled: Sheets, texts: Texts) -> Batch:
    rows = filled.rows(sheets.HOST, sheets.N_HOST)
    codes = dict(zip(layout.HOST_TEXTS, filled.rows(sheets.HOST_TEXTS, sheets.N_HOST), strict=True))
    known, place = texts.distinct(codes[C.NAME])
    _refuse_hidden_ops(known, texts)
    built = Building(rows.shape[1])
    _add_table(built, layout.HOST, rows)
    built.texts(C.KIND, _of_few(_host_kinds(rows[-1], known, place, texts), layout.HOST_KINDS, texts))
    built.texts(C.NAME, (place, texts.encoded.of(known)))
    for name in (C.INPUT_SHAPES, C.INPUT_DTYPES):
        known, place = texts.distinct(codes[name])
        built.texts(name, (place, texts.fragments.of(known)))
    built.texts(C.STACK, _stacks(codes[C.STACK], texts))
    _add(built, C.FLOPS, _flops(codes[C.NAME], codes[C.INPUT_SHAPES], codes[C.FLOPS], texts))
    return built.batch()


def _refuse_hidden_ops(known: Ints, texts: Texts) -> None:
    """A counted op whose name is written with escapes was not seen to be one."""
    escaped = known[texts.escaped.of(known)]
    if len(escaped) and not flops.COUNTED.isdisjoint(texts.strings.of(escaped)):
        raise SurpriseError


def _host_kinds(kinds: Ints, known: Ints, place: Ints, texts: Texts) -> Ints:
    for kind, becomes in texts.kinds.items():
        concerned = kinds == layout.HOST_KINDS.index(kind)
        kinds = np.where(concerned, becomes.of(known)[place], kinds)
    return kinds


def _of_few(numbers: Ints, values: tuple[str, ...], texts: Texts) -> Words:
    found, place = texts.distinct(numbers)
    return place, [values[number].encode() for number in found]


def _stacks(codes: Ints, texts: Texts) -> Words:
    known, place = texts.distinct(codes)
    stacks = texts.encoded.of(known)
    empty = stacks == b""
    if not empty.any():
        return place, stacks
    number = np.append(np.where(empty, NONE, np.cumsum(~empty) - 1), NONE)  # the last for no stack at all
    return number[place], stacks[~empty]


def _flops(name: Ints, shapes: Ints, values: Ints, texts: Texts) -> Ints:
    work = np.full(len(name), layout.NULL)
    counted = np.flatnonzero(name < layout.COUNTED)
    codes = [each[counted] + 1 for each in (name, shapes, values)]  # none is 0
    sizes = (layout.COUNTED + 1, texts.count + 1, texts.count + 1)
    calls, call = np.unique(np.ravel_multi_index(codes, sizes), return_inverse=True)
    found = [_work(each, texts) for each in np.transpose(np.unravel_index(calls, sizes)).tolist()]
    work[counted] = np.array(found, np.int64)[call]
    return work


def _work(codes: list[int], texts: Texts) -> int:
    name, shapes, values = (texts.raw(code - 1) for code in codes)
    work = _count(name.decode(), shapes, values)
    return layout.NULL if work is None else work


def _device(filled: Sheets, texts: Texts) -> Batch:
    rows = filled.rows(sheets.DEVICE, sheets.N_DEVICE)
    known, place = texts.distinct(filled.rows(sheets.DEVICE_TEXTS, sheets.N_DEVICE)[0])
    built = Building(rows.shape[1])
    _add_table(built, layout.DEVICE, rows)
    built.texts(C.KIND, _of_few(rows[-1], layout.DEVICE_KINDS, texts))
    built.texts(C.NAME, (place, texts.encoded.of(known)))
    copied, copy = texts.distinct(np.where(rows[-1] == _COPY, place, NONE))
    _add_ends(built, copy, [names.copy_ends(name) for name in texts.strings.of(known[copied])])
    return built.batch()


def _add_ends(built: Building, copy: Ints, ends: Sequence[tuple[object, ...]]) -> None:
    """What names of copies tell of them: `copy` is each row's place among these names."""
    for number, column in enumerate(COPY_COLUMNS):
        built.texts(column, (copy, [str(each[number]).encode() for each in ends]))


def _memory(filled: Sheets) -> Batch:
    rows = filled.rows(sheets.MEMORY, sheets.N_MEMORY)
    built = Building(rows.shape[1])
    _add_table(built, layout.MEMORY, rows)
    return built.batch()


def _counters(filled: Sheets, text: memoryview, tally: Tally) -> Batch:
    bounds = filled.rows(sheets.COUNTERS, sheets.N_COUNTERS).T.tolist()
    events = decode_counters(b",".join(bytes(text[start:end]) for start, end in bounds))
    return counter_rows(events, tally)
