"""A trace's borders between whole events, and its events a line each, for parsers that want them."""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from benchmarks.inputs.cut import borders, events
from benchmarks.inputs.kept import kept

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.inputs.traces import Trace


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Files made from a plain trace.

    Attributes:
        borders: JSON: first and last byte of each piece of whole events, as `tracekit import` cuts them.
        lines: The events, one a line.
    """

    borders: Path
    lines: Path


def pieces(trace: Trace) -> Pieces:
    """Cut a plain trace."""
    place = trace.path.parents[1].with_name(f"{trace.path.parents[1].name}-pieces")

    def make(draft: Path) -> dict[str, int]:
        count = 0
        with (draft / "events.ndjson").open("wb") as lines:
            for each in events(trace.path):
                lines.writelines(msgspec.json.format(bytes(one), indent=-1) + b"\n" for one in each)
                count += len(each)
        with trace.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            cuts = list(borders(trace.path, text))
        (draft / "borders.json").write_text(json.dumps(cuts))
        return {"events": count}

    facts = kept(place, trace.base.path, make, size=trace.size)
    if facts["events"] != trace.events:
        message = f"{trace.path} holds {trace.events} events, but its pieces {facts['events']}"
        raise ValueError(message)
    return Pieces(borders=place / "borders.json", lines=place / "events.ndjson")
