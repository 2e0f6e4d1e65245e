"""Imported runs, each in a store of its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.ingest.importer import import_traces
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.inputs.traces import Trace

_INTERVALS = ("device_intervals", "host_intervals")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A run.

    Attributes:
        store: The folder of the store that holds it alone.
        run: Its id.
        size: Bytes of the trace that it came from.
        events: Its intervals, on devices and hosts.
    """

    store: Path
    run: str
    size: int
    events: int


def imported(trace: Trace) -> Imported:
    """The run of a trace, imported anew: the program that imports may have changed."""
    folder = trace.path.parents[1]
    place = folder.with_name(f"{folder.name}-run") / "store"
    shutil.rmtree(place, ignore_errors=True)
    (run,) = import_traces(Store(place), [trace.path])
    tables = json.loads((run.path / "run.json").read_bytes())["tables"]
    events = sum(tables[name]["rows"] for name in _INTERVALS if name in tables)
    return Imported(store=place, run=run.path.name, size=trace.size, events=events)
