"""Inputs of the benchmarks: traces, exports and runs of given sizes, amplified from small ones.

Files are made once. The digest of the source and of this code is stored beside them; they are made again when
it changes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import mmap
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks import amplify, amplify_nsys
from samples.simulator import Program, nsys, write
from tracekit.ingest.importer import import_traces
from tracekit.ingest.kineto.source import open_trace
from tracekit.ingest.kineto.split import chunks, read_opening, take_apart
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_FACTS = "facts.json"
_CODE = [Path(__file__).with_name(f"{name}.py") for name in ("inputs", "amplify", "amplify_nsys")]
STEPS, LAYERS = 4, 50
GZIP_LEVEL = 6


def cached(
    folder: Path, source: Path, make: Callable[[Path], dict[str, int]], **options: object
) -> dict[str, int]:
    """Facts about a folder's content, which `make` creates unless it is up to date.

    Args:
        folder: The folder; created atomically.
        source: File it is made from.
        make: Fills an empty folder and returns facts about the content.
        options: Further options that determine the content.
    """
    made_from = _digest(source, options)
    try:
        facts = json.loads((folder / _FACTS).read_text())
        if facts.pop("made_from") == made_from:
            return dict(facts)
    except (OSError, ValueError, KeyError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    draft = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    facts = make(draft)
    (draft / _FACTS).write_text(json.dumps({**facts, "made_from": made_from}))
    draft.rename(folder)
    return facts


def _digest(source: Path, options: dict[str, object]) -> str:
    digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode())
    for path in (source, *_CODE):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Base:
    """A small file that large inputs are made from.

    Attributes:
        name: Name in tables.
        path: The file.
        on_device: Whether it contains device activity.
    """

    name: str
    path: Path
    on_device: bool = True


def simulated_program() -> Program:
    """Training steps: nested ops, kernels of six names, allocations, one copy per step."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for layer in range(LAYERS):
                with program.op("aten::linear"), program.op("aten::addmm", shapes=[[64, 256], [256, 256]]):
                    program.allocate(64 * 256 * 4)
                    program.kernel(f"gemm_{layer % 5}", 9_000, grid=(8, 4, 1))
                with program.op("aten::relu", shapes=[[64, 256]]):
                    program.kernel("relu", 3_000, grid=(64, 1, 1))
            program.copy("H2D", 65_536)
    return program


def simulated_trace(folder: Path) -> Path:
    """Write the simulated program's trace, as large as a small real one."""
    return write(simulated_program(), folder / "simulated.json")


def simulated_export(folder: Path) -> Path:
    """Write the simulated program's Nsight Systems export, with short kernel names as in real ones."""
    path = nsys.write(simulated_program(), folder / "simulated.sqlite")
    with closing(sqlite3.connect(path)) as file:
        file.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN shortName INTEGER")
        file.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = demangledName")
        file.commit()
    return path


def event_texts(path: Path) -> Iterator[list[msgspec.Raw]]:
    """Text of every event of a plain trace, by chunk."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for start, end in chunk_bounds(path, text):
            yield msgspec.json.decode(b"[" + text[start:end] + b"]", type=list[msgspec.Raw])


def chunk_bounds(path: Path, text: mmap.mmap | bytes) -> Iterator[tuple[int, int]]:
    """Byte ranges of the chunks of complete events into which `tracekit import` bounds a trace.

    Args:
        path: The trace.
        text: Its bytes.
    """
    with open_trace(path) as stream:
        opening = read_opening(stream, path.name)
        start = len(opening.header)
        for chunk in chunks(stream, opening.rest):
            end = start + chunk.length
            last = end == len(text)
            yield start, end - len(take_apart(bytes(chunk.view)).tail) if last else end
            start = end if last else text.find(b",", end) + 1


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A trace, plain or gzipped.

    Attributes:
        path: The file, alone in its folder, as some tools require.
        form: `plain` or `gz`.
        base: File it was made from.
        size: Uncompressed size in bytes.
        events: Number of events.
    """

    path: Path
    form: str
    base: Base
    size: int
    events: int


def amplified_trace(folder: Path, base: Base, megabytes: float) -> Trace:
    """A plain trace of about that many MB."""
    size = round(megabytes * 1e6)

    def make(draft: Path) -> dict[str, int]:
        (draft / "trace").mkdir()
        path = draft / "trace" / "trace.json"
        events = amplify.amplify(base.path, path, size)
        return {"events": events, "size": path.stat().st_size}

    target = folder / f"{base.name}-{megabytes:g}MB"
    facts = cached(target, base.path, make, size=size)
    path = target / "trace" / "trace.json"
    return Trace(path=path, form="plain", base=base, size=facts["size"], events=facts["events"])


def given_trace(folder: Path, base: Base) -> Trace:
    """A plain trace measured as it is."""

    def make(draft: Path) -> dict[str, int]:
        (draft / "trace").mkdir()
        (draft / "trace" / "trace.json").symlink_to(base.path.absolute())
        size = base.path.stat().st_size
        return {"events": sum(map(len, event_texts(base.path))), "size": size}

    target = folder / f"given-{base.name}"
    facts = cached(target, base.path, make)
    path = target / "trace" / "trace.json"
    return Trace(path=path, form="plain", base=base, size=facts["size"], events=facts["events"])


def gzipped_trace(trace: Trace) -> Trace:
    """The same trace, compressed as by the profiler."""

    def make(draft: Path) -> dict[str, int]:
        (draft / "trace").mkdir()
        with (
            trace.path.open("rb") as source,
            gzip.open(draft / "trace" / "trace.json.gz", "wb", compresslevel=GZIP_LEVEL) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        return {"events": trace.events, "size": trace.size}

    target = trace.path.parents[1].with_name(f"{trace.path.parents[1].name}-gz")
    cached(target, trace.base.path, make, size=trace.size)
    path = target / "trace" / "trace.json.gz"
    return Trace(path=path, form="gz", base=trace.base, size=trace.size, events=trace.events)


@dataclass(frozen=True, kw_only=True)
class SplitTrace:
    """Forms of a plain trace for parsers that need them.

    Attributes:
        bounds: JSON: byte range of each chunk of complete events.
        lines: The events, one per line.
    """

    bounds: Path
    lines: Path


def split_trace(trace: Trace) -> SplitTrace:
    """Split a plain trace."""
    target = trace.path.parents[1].with_name(f"{trace.path.parents[1].name}-pieces")

    def make(draft: Path) -> dict[str, int]:
        count = 0
        with (draft / "events.ndjson").open("wb") as lines:
            for each in event_texts(trace.path):
                lines.writelines(msgspec.json.format(bytes(one), indent=-1) + b"\n" for one in each)
                count += len(each)
        with trace.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            bounds = list(chunk_bounds(trace.path, text))
        (draft / "bounds.json").write_text(json.dumps(bounds))
        return {"events": count}

    facts = cached(target, trace.base.path, make, size=trace.size)
    if facts["events"] != trace.events:
        message = f"{trace.path} has {trace.events} events, but its chunks have {facts['events']}"
        raise ValueError(message)
    return SplitTrace(bounds=target / "bounds.json", lines=target / "events.ndjson")


@dataclass(frozen=True, kw_only=True)
class Export:
    """A SQLite export of Nsight Systems.

    Attributes:
        path: The file.
        base: File it was made from.
        size: Size in bytes.
        events: Rows of its event tables.
    """

    path: Path
    base: Base
    size: int
    events: int


def given_export(base: Base) -> Export:
    """An export measured as it is."""
    with closing(sqlite3.connect(base.path)) as file:
        events = amplify_nsys.count(file)
    return Export(path=base.path.absolute(), base=base, size=base.path.stat().st_size, events=events)


def amplified_export(folder: Path, base: Base, megabytes: float) -> Export:
    """An export of about that many MB."""
    size = round(megabytes * 1e6)

    def make(draft: Path) -> dict[str, int]:
        path = draft / "export.sqlite"
        return {"events": amplify_nsys.amplify(base.path, path, size), "size": path.stat().st_size}

    target = folder / f"nsys-{base.name}-{megabytes:g}MB"
    facts = cached(target, base.path, make, size=size)
    return Export(path=target / "export.sqlite", base=base, size=facts["size"], events=facts["events"])


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """A run, alone in its store.

    Attributes:
        store: Folder of the store.
        run: Run id.
        size: Size of its trace in bytes.
        events: Number of device and host intervals.
    """

    store: Path
    run: str
    size: int
    events: int


def imported_run(trace: Trace) -> ImportedRun:
    """Import a trace; never cached, since the importer may have changed."""
    folder = trace.path.parents[1]
    target = folder.with_name(f"{folder.name}-run") / "store"
    shutil.rmtree(target, ignore_errors=True)
    (run,) = import_traces(Store(target), [trace.path])
    tables = json.loads((run.path / "run.json").read_bytes())["tables"]
    events = sum(tables[name]["rows"] for name in ("device_intervals", "host_intervals") if name in tables)
    return ImportedRun(store=target, run=run.path.name, size=trace.size, events=events)
