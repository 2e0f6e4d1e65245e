"""Columns of the rows that events become: durations, ids and places that are unusual."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.traces import kernel_event
from tracekit.ingest.kineto.batches import Tally, to_batches
from tracekit.ingest.kineto.events import decode
from tracekit.schema import HOST_DEVICE, C


def column(table: str, name: str, *events: dict[str, Any]) -> tuple[list[Any], Tally]:
    """Values of a column by event, None where it is missing, and the tally."""
    batches, tally = to_batches(decode(",".join(map(json.dumps, events)).encode()))
    rows = batches[table].rows
    if name not in rows.columns:
        return [None] * rows.count, tally
    values, missing = rows.columns[name]
    absent = np.zeros(rows.count, bool) if missing is None else missing
    return [None if gone else value for value, gone in zip(values.tolist(), absent, strict=True)], tally


def test_a_duration_that_is_negative_or_no_number_is_zero_and_counted() -> None:
    events = [kernel_event(number, dur=dur) for number, dur in enumerate([5.25, -5.25, "x", 0])]
    durations, tally = column("device_intervals", C.DUR_NS, *events)
    assert (durations, tally.bad_duration) == ([5_250, 0, 0, 0], 2)


def test_external_id_0_is_none() -> None:
    events = [{**kernel_event(number), "args": {"External id": value}} for number, value in enumerate([7, 0])]
    assert column("device_intervals", C.EXTERNAL_ID, *events)[0] == [7, None]


def test_memory_events_without_a_device_are_of_the_host() -> None:
    devices: list[dict[str, Any]] = [
        {"Device Type": 1, "Device Id": 2},
        {"Device Type": 1},
        {"Device Type": 0, "Device Id": -1},
        {},
    ]
    events = [
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": {"Bytes": 64, **device}}
        for device in devices
    ]
    assert column("allocations", C.DEVICE, *events)[0] == [2, 0, HOST_DEVICE, HOST_DEVICE]
