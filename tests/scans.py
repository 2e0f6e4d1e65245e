"""Compare the scanner with the reference decoder: what it accepts, both must decode to the same rows.

    python -m tests.scans TRACE...

reports how many chunks of each trace the scanner accepts, and reduces a chunk on which the decoders differ to
the events that show it.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.ingest.kineto.batches import to_batches
from tracekit.ingest.kineto.events import decode
from tracekit.ingest.kineto.scan import loader
from tracekit.ingest.kineto.source import open_trace
from tracekit.ingest.kineto.split import ROOM, Text, chunks, closes_events, read_opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.ingest.kineto.scan.scanner import Scanned, Scanner
    from tracekit.ingest.spool.rows import Batch


@cache
def scanner() -> Scanner:
    """One scanner for all tests of a process: what it has met before must not matter."""
    return loader.load()()


def text_of(content: bytes) -> Text:
    return Text(memoryview(bytearray(content) + bytes(ROOM)), len(content))


def chunks_of(path: Path) -> Iterator[bytes]:
    """A trace's chunks, as an import cuts them."""
    with open_trace(path) as stream:
        for text in chunks(stream, read_opening(stream, path.name).rest):
            yield bytes(text.view)


def agrees(content: bytes, *, by: Scanner | None = None) -> bool:
    """Whether the scanner accepted the text; that it then equals the reference is asserted."""
    scanned = (by or scanner()).scan(text_of(content))
    if scanned is None:
        return False
    tail = b"" if scanned.closed is None else content[scanned.closed :]
    if tail and not closes_events(tail, 0):
        return False
    _equal(content, scanned, tail)
    return True


def _equal(content: bytes, scanned: Scanned, tail: bytes) -> None:
    decoded = decode(content)
    assert (decoded.ended, decoded.tail, decoded.clean) == (bool(tail), tail, not tail)
    batches, tally = to_batches(decoded)
    assert scanned.tally == tally
    assert (tally.repaired, tally.dropped) == (0, 0)
    assert set(scanned.batches) == set(batches)
    for table, batch in batches.items():
        assert _rows(scanned.batches[table]).equals(_rows(batch)), table


def _rows(batch: Batch) -> pa.Table:
    """Rows in an order of their own: the reference gives them by category, the scanner as they come."""
    named = pa.table({name: _values(batch, name) for name in sorted(batch.rows.columns)})
    return named.sort_by([(name, "ascending") for name in named.column_names]).combine_chunks()


def _values(batch: Batch, name: str) -> pa.Array:
    """A column with its texts; a number that is missing is -1 as long as it is parked."""
    values, missing = batch.rows.columns[name]
    if name in batch.texts:
        texts = [*batch.texts[name], None]
        return pa.array([texts[code] for code in values.tolist()], pa.binary())
    assert missing is None or (values[missing] == -1).all() or values.dtype == np.float64
    return pa.array(values, mask=missing)


def reduced(content: bytes, differ: Callable[[bytes], bool]) -> bytes:
    """Leave events out as long as the rest still differs: halves first, then smaller parts."""
    events = _events(content.decode())
    size = len(events) // 2
    while size:
        at = 0
        while at < len(events):
            rest = events[:at] + events[at + size :]
            if rest and differ(",".join(rest).encode()):
                events = rest
            else:
                at += size
        size //= 2
    return ",".join(events).encode()


def _events(text: str) -> list[str]:
    found, at, decoder = [], 0, json.JSONDecoder()
    while start := re.compile(r"[\s,]*(?=\{)").match(text, at):
        _, at = decoder.raw_decode(text, start.end())
        found.append(text[start.end() : at])
    return found


def _differ(content: bytes) -> bool:
    try:
        agrees(content)
    except AssertionError:
        return True
    return False


def main(paths: list[str]) -> int:
    """Compare the decoders on traces; the exit code is 1 when they differ."""
    code = 0
    for path in paths:
        accepted = refused = 0
        for number, content in enumerate(chunks_of(Path(path))):
            try:
                equal = agrees(content)
            except AssertionError:
                code = 1
                print(f"{path}: chunk {number} differs: {reduced(content, _differ).decode()}")
            else:
                accepted, refused = accepted + equal, refused + (not equal)
        print(f"{path}: {accepted} chunks accepted and equal, {refused} left to the reference")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
