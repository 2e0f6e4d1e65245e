"""Where a plain trace is cut between whole events, as `tracekit import` does it."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import msgspec

from tracekit.ingest.kineto.source import open_trace
from tracekit.ingest.kineto.split import chunks, read_opening, take_apart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def events(path: Path) -> Iterator[list[msgspec.Raw]]:
    """The text of every event of a plain trace, piece by piece."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for start, end in borders(path, text):
            yield msgspec.json.decode(b"[" + text[start:end] + b"]", type=list[msgspec.Raw])


def borders(path: Path, text: mmap.mmap | bytes) -> Iterator[tuple[int, int]]:
    """Where each piece of whole events begins and ends.

    Args:
        path: The trace.
        text: All its bytes.
    """
    with open_trace(path) as stream:
        opening = read_opening(stream, path.name)
        place = len(opening.header)
        for chunk in chunks(stream, opening.rest):
            end = place + chunk.length
            last = end == len(text)
            yield place, end - len(take_apart(bytes(chunk.view)).tail) if last else end
            place = end if last else text.find(b",", end) + 1
