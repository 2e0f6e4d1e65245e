"""The rows of a scan as the batches that the reference decoder makes of the same events."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.ingest import flops
from tracekit.ingest.arrays import numbers
from tracekit.ingest.kineto import names
from tracekit.ingest.kineto.batches import COPY_COLUMNS, counter_rows
from tracekit.ingest.kineto.columns import fitting_devices
from tracekit.ingest.kineto.events import decode_counters
from tracekit.ingest.kineto.scan import layout, sheets
from tracekit.ingest.kineto.scan.texts import coded, distinct
from tracekit.schema import ALLOCATIONS, COUNTERS, DEVICE_INTERVALS, HOST_INTERVALS, C, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tracekit.ingest.kineto.batches import Batches, Tally
    from tracekit.ingest.kineto.scan.sheets import Sheets
    from tracekit.ingest.kineto.scan.texts import Ints, Texts

_count = lru_cache(1 << 12)(flops.count)  # chunk after chunk has the same calls
_COPY = layout.DEVICE_KINDS.index(DeviceKind.MEMCPY)


class SurpriseError(Exception):
    """Something that only the reference decoder handles."""


def batches(filled: Sheets, texts: Texts, text: memoryview, tally: Tally) -> Batches:
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
    return {name: batch for name, batch in built.items() if batch is not None}


def _ignored(filled: Sheets, texts: Texts) -> Counter[str]:
    codes, count = np.unique(filled.rows(sheets.UNKNOWN, sheets.N_UNKNOWN)[0], return_counts=True)
    return Counter(dict(zip(texts.strings.of(codes), count.tolist(), strict=True)))


def _integers(values: Ints) -> pa.Array:
    return numbers(values, values == layout.NULL)


def _columns(layout_of: Mapping[str, int], rows: Ints) -> dict[str, pa.Array]:
    return {name: _integers(values) for name, values in zip(layout_of, rows, strict=False)}


def _host(filled: Sheets, texts: Texts) -> pa.RecordBatch | None:
    rows = filled.rows(sheets.HOST, sheets.N_HOST)
    if not rows.shape[1]:
        return None
    codes = dict(zip(layout.HOST_TEXTS, filled.rows(sheets.HOST_TEXTS, sheets.N_HOST), strict=True))
    known, place = distinct(codes[C.NAME], texts.count)
    _refuse_hidden_ops(known, texts)
    return pa.RecordBatch.from_pydict(
        {
            C.START_NS: None,  # a part's columns stand in one order, whoever decodes it
            C.DUR_NS: None,
            C.KIND: _host_kinds(rows[-1], known, place, texts),
            C.NAME: coded(place, texts.encoded.of(known)),
            **_columns(layout.HOST, rows),
            C.INPUT_SHAPES: _fragments(codes[C.INPUT_SHAPES], texts),
            C.INPUT_DTYPES: _fragments(codes[C.INPUT_DTYPES], texts),
            C.STACK: _stacks(codes[C.STACK], texts),
            C.FLOPS: _flops(codes[C.NAME], codes[C.INPUT_SHAPES], codes[C.FLOPS], texts),
        }
    )


def _refuse_hidden_ops(known: Ints, texts: Texts) -> None:
    """A counted op whose name is written with escapes was not seen to be one."""
    escaped = known[texts.escaped.of(known)]
    if len(escaped) and not flops.COUNTED.isdisjoint(texts.strings.of(escaped)):
        raise SurpriseError


def _host_kinds(kinds: Ints, known: Ints, place: Ints, texts: Texts) -> pa.DictionaryArray:
    for kind, becomes in texts.kinds.items():
        concerned = kinds == layout.HOST_KINDS.index(kind)
        kinds = np.where(concerned, becomes.of(known)[place], kinds)
    return _of_few(kinds, layout.HOST_KINDS)


def _of_few(numbers: Ints, values: tuple[str, ...]) -> pa.DictionaryArray:
    found, place = distinct(numbers, len(values))
    return coded(place, [values[number].encode() for number in found])


def _fragments(codes: Ints, texts: Texts) -> pa.DictionaryArray:
    known, place = distinct(codes, texts.count)
    return coded(place, texts.fragments.of(known))


def _stacks(codes: Ints, texts: Texts) -> pa.DictionaryArray:
    known, place = distinct(codes, texts.count)
    stacks = texts.encoded.of(known)
    empty = np.flatnonzero(stacks == b"")
    return coded(np.where(np.isin(place, empty), -1, place) if len(empty) else place, stacks)


def _flops(name: Ints, shapes: Ints, values: Ints, texts: Texts) -> pa.Array:
    work = np.full(len(name), layout.NULL)
    counted = np.flatnonzero(name < layout.COUNTED)
    codes = [each[counted] + 1 for each in (name, shapes, values)]  # none is 0
    sizes = (layout.COUNTED + 1, texts.count + 1, texts.count + 1)
    calls, call = np.unique(np.ravel_multi_index(codes, sizes), return_inverse=True)
    found = [_work(each, texts) for each in np.transpose(np.unravel_index(calls, sizes)).tolist()]
    work[counted] = np.array(found, np.int64)[call]
    return _integers(work)


def _work(codes: list[int], texts: Texts) -> int:
    name, shapes, values = (texts.raw(code - 1) for code in codes)
    work = _count(name.decode(), shapes, values)
    return layout.NULL if work is None else work


def _device(filled: Sheets, texts: Texts) -> pa.RecordBatch | None:
    rows = filled.rows(sheets.DEVICE, sheets.N_DEVICE)
    if not rows.shape[1]:
        return None
    devices, occupancy = (list(layout.DEVICE).index(name) for name in (C.DEVICE, C.OCCUPANCY_PCT))
    known, place = distinct(filled.rows(sheets.DEVICE_TEXTS, sheets.N_DEVICE)[0], texts.count)
    named = texts.strings.of(known)
    return pa.RecordBatch.from_pydict(
        {
            C.START_NS: None,
            C.DUR_NS: None,
            C.KIND: _of_few(rows[-1], layout.DEVICE_KINDS),
            C.NAME: coded(place, texts.encoded.of(known)),
            **_columns(layout.DEVICE, rows),
            C.DEVICE: fitting_devices(rows[devices]),
            C.OCCUPANCY_PCT: numbers(rows[occupancy].view(np.float64), rows[occupancy] == layout.NULL),
            **_copies(rows[-1] == _COPY, place, named),
        }
    )


def _copies(
    is_copy: np.ndarray[tuple[int], np.dtype[np.bool_]], place: Ints, named: npt.NDArray[np.object_]
) -> dict[str, pa.Array]:
    copied, copy = distinct(np.where(is_copy, place, -1), len(named))
    ends = [names.copy_ends(named[number]) for number in copied]
    columns = {}
    for number, column in enumerate(COPY_COLUMNS):
        values = [str(each[number]).encode() for each in ends]
        distinct_values = sorted(set(values))
        codes = np.array([*map(distinct_values.index, values), -1])
        columns[column] = coded(codes[copy], distinct_values)
    return columns


def _memory(filled: Sheets) -> pa.RecordBatch | None:
    rows = filled.rows(sheets.MEMORY, sheets.N_MEMORY)
    if not rows.shape[1]:
        return None
    device = rows[list(layout.MEMORY).index(C.DEVICE)]
    return pa.RecordBatch.from_pydict({**_columns(layout.MEMORY, rows), C.DEVICE: fitting_devices(device)})


def _counters(filled: Sheets, text: memoryview, tally: Tally) -> pa.RecordBatch | None:
    bounds = filled.rows(sheets.COUNTERS, sheets.N_COUNTERS).T.tolist()
    events = decode_counters(b",".join(bytes(text[start:end]) for start, end in bounds))
    return counter_rows(events, tally)
