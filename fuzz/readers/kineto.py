"""Traces of torch.profiler: JSON, plain and gzipped in several ways."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

from fuzz.case import Case
from fuzz.checks import check_decoding, check_import
from fuzz.damage import damage
from fuzz.json_document import Raw, change_document, copy, edge_value, to_json
from samples.simulator import Clock, Program, trace
from samples.simulator.examples import training
from tracekit.ingest.kineto import reader
from tracekit.ingest.kineto.scan.loader import Scanners
from tracekit.ingest.pool import open_pool
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

_WORDS = (
    *(b'"traceEvents": [', b"]}", b"}, {", b"},{", b'{"ph":"X"', b"\\", b'"', b"\x00", b"\xef\xbb\xbf"),
    *(b'"ts":', b'"dur":', b'"args":{', b"NaN", b"1e400", b"\\ud800", b"\xff", b"\xed\xa0\x80", b"],", b":"),
    *(b"/*", b"\x1b[2J", b"9" * 40, b"-", b"[" * 200, b"{" * 200, b" " * 200, b'"}, {"ph'),
)
IMPORTED, SCANNED, REFERENCE = "imported", "scanned", "reference"
_MODES = (IMPORTED, *(SCANNED,) * 6, *(REFERENCE,) * 3)
"""Importing costs ten times as much as decoding."""
_EVENTS = (2, 4, 12)
_NAME = {False: "trace.json", True: "trace.json.gz"}


@cache
def _documents() -> tuple[dict[str, Any], ...]:
    short = Program()
    with short.step(), short.op("aten::mm", shapes=[[2, 2], [2, 2]], dtypes=["float", "float"]):
        short.allocate(512)
        short.copy("H2D", 96)
        short.kernel("gemm", 9_000)
        short.synchronize()
    texts = [trace(short), trace(short, clock=Clock.EPOCH), trace(training(rank=1, world_size=2))]
    return tuple(json.loads(text) for text in texts)


def make(random: Random) -> Case:
    """Make a trace with damaged values, text or compression."""
    text = _text(random).encode("utf-8", "surrogatepass")
    if random.random() < 0.45:
        text = damage(random, text, _WORDS)
    zipped = random.random() < 0.25
    content = random.choice(_PACKINGS)(random, text) if zipped else text
    if zipped and random.random() < 0.6:
        content = damage(random, content)
    name = _NAME[zipped]
    return Case(files={name: content}, main=name, words=(random.choice(_MODES),))


def _text(random: Random) -> str:
    whole = random.choice(_documents())
    events = whole["traceEvents"]
    first = random.randrange(len(events))
    chosen = (events[first:] + events[:first])[: random.choice(_EVENTS)]
    document = copy({**whole, "traceEvents": chosen})
    if random.random() < 0.2:
        _extreme_times(random, document)
    if random.random() < 0.2:
        _reported_kinds(random, document["traceEvents"])
    document = change_document(random, document, random.choice((0, 1, 1, 2, 4, 9)))
    bare = random.random() < 0.1
    text = to_json(document.get("traceEvents", edge_value(random)) if bare else document)
    if random.random() < 0.05:  # a second list of events
        second = random.choice(("[]", "[{}]", text, '[{"ph": "X", "ts": 1, "dur": 2}]', "[[[", "7"))
        text = f'{text.rstrip()[:-1]}, "traceEvents": {second}}}'
    if random.random() < 0.05:  # a second writer of the file
        other = text.replace('"pid": ', '"pid": 1')
        text = random.choice(
            (
                text + other,
                text[: random.randrange(len(text) + 1)] + other[random.randrange(len(other) + 1) :],
                text + other[random.randrange(len(other) + 1) :],
            )
        )
    return text


def _reported_kinds(random: Random, events: list[dict[str, Any]]) -> None:
    """Change events to what public reports say breaks readers."""
    for event in events:
        others = [{**event, "args": {}}]
        collective: dict[str, Any] = {"Collective name": "allreduce", "dtype": "BFloat16"}
        collective["In msg nelems"] = random.choice((64, -1, "x", 1 << 70))
        collective["Process Group Ranks"] = random.choice(("[0, 1]", [0, 1], None))
        wait = f"{random.choice(('Stream', 'Context'))} Synchronize"
        of_event: list[dict[str, Any]] = [
            {"ph": random.choice("BE")},
            {"dur": -1},
            {"ts": 0, "dur": 0},
            {"pid": random.choice(("[TP00-DP00] 7", "[TP01] 7", 100_000_000, "CUDA functions"))},
            {"name": f"ProfilerStep#{random.randrange(3)}"},
            {"cat": "cuda_sync", "name": wait},
            {"kept": others},
        ]
        of_args = [collective, {"correlation": 0}, {"kept": others}]
        kind = random.randrange(len(of_event) + len(of_args))
        if kind < len(of_event):
            event |= of_event[kind]
        elif isinstance(event.get("args"), dict):
            event["args"] |= of_args[kind - len(of_event)]


def _extreme_times(random: Random, document: dict[str, Any]) -> None:
    """Set some times near the limits of 64 bits."""
    for event in document["traceEvents"]:
        for key in ("ts", "dur"):
            if key in event and random.random() < 0.4:
                event[key] = Raw(random.choice(_TIMES))
    document["baseTimeNanoseconds"] = random.choice((0, 1 << 60, -(1 << 62), (1 << 63) - 1, 1 << 64))


_TIMES = (
    "4611686018427387.903",
    "-4611686018427387.903",
    "2305843009213693.951",
    "1152921504606846.975",
    "9223372036854775.807",
    "-9223372036854775.808",
    "0",
    "-0.001",
    "1e15",
    "1760000000000000.123",
)


def _plain(_random: Random, text: bytes) -> bytes:
    return gzip.compress(text, 1, mtime=0)


def _members(random: Random, text: bytes) -> bytes:
    at = random.randrange(len(text) + 1)
    between = random.choice((b"", b"\0" * 9, gzip.compress(b"", mtime=0), b"noise"))
    return gzip.compress(text[:at], 1, mtime=0) + between + gzip.compress(text[at:], 1, mtime=0)


def _blocks(random: Random, text: bytes) -> bytes:
    size = random.choice((40, 400, 4000))
    return b"".join(_block(text[at : at + size]) for at in range(0, len(text), size)) + _block(b"")


def _block(text: bytes) -> bytes:
    """One block as bgzip writes it."""
    body = zlib.compressobj(1, zlib.DEFLATED, -15)
    data = body.compress(text) + body.flush()
    head = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff" + struct.pack("<H2sHH", 6, b"BC", 2, len(data) + 25)
    return head + data + struct.pack("<II", zlib.crc32(text), len(text))


_PACKINGS = (_plain, _members, _blocks)


def read(case: Case, folder: Path) -> bool:
    """Import the trace, or decode it with the scanner or the reference."""
    path = case.write(folder)
    if case.words == (IMPORTED,):
        return check_import(path, Store(folder / "store"))
    with open_pool(1, processes=False) as pool:
        fast = _scanners() if case.words == (SCANNED,) else None
        return check_decoding(lambda spool: [reader.read(path, spool, pool, _silent, scanners=fast)], folder)


@cache
def _scanners() -> Scanners:
    found = Scanners()
    found.start(compiling=False)
    return found


def _silent(_done: int) -> None:
    pass
