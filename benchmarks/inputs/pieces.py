"""A trace's borders between whole events, and its events a line each, for parsers that want them."""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from benchmarks.inputs.kept import kept
from tracekit.ingest.kineto.source import open_trace
from tracekit.ingest.kineto.split import chunks, read_opening, take_apart

if TYPE_CHECKING:
    from collections.abc import Iterator
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
        cuts, events = [], 0
        with (
            trace.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
            (draft / "events.ndjson").open("wb") as lines,
        ):
            for start, end in borders(trace.path, text):
                cuts.append((start, end))
                each = msgspec.json.decode(b"[" + text[start:end] + b"]", type=list[msgspec.Raw])
                lines.writelines(msgspec.json.format(bytes(one), indent=-1) + b"\n" for one in each)
                events += len(each)
        (draft / "borders.json").write_text(json.dumps(cuts))
        return {"events": events}

    facts = kept(place, trace.base.path, make, size=trace.size)
    if facts["events"] != trace.events:
        message = f"{trace.path} holds {trace.events} events, but its pieces {facts['events']}"
        raise ValueError(message)
    return Pieces(borders=place / "borders.json", lines=place / "events.ndjson")


def borders(path: Path, text: mmap.mmap | bytes) -> Iterator[tuple[int, int]]:
    """First and last byte of each piece of whole events of a plain trace.

    Args:
        path: The trace.
        text: All its bytes.
    """
    with open_trace(path) as stream:
        opening = read_opening(stream, path.name)
        place = len(opening.header)
        for chunk in chunks(stream, opening.rest):
            end = place + len(chunk)
            last = end == len(text)
            yield place, end - len(take_apart(chunk).tail) if last else end
            place = end if last else text.find(b",", end) + 1
