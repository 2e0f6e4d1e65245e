"""Inputs of the benchmarks: size, content and caching."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from benchmarks.inputs import (
    Base,
    amplified_export,
    amplified_trace,
    cached,
    chunk_bounds,
    gzipped_trace,
    imported_run,
    simulated_export,
    simulated_trace,
    split_trace,
)
from benchmarks.parts import RECORDED
from benchmarks.peers import LIST, requirements_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.inputs import Trace


@pytest.fixture(scope="module", params=["simulated", "recorded"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("inputs")
    path = simulated_trace(folder) if request.param == "simulated" else RECORDED
    return amplified_trace(folder, Base(name=request.param, path=path), 9)


def test_a_trace_has_the_size_and_is_alone_in_its_folder(trace: Trace) -> None:
    assert 9_000_000 <= trace.size == trace.path.stat().st_size < 16_000_000
    assert [path.name for path in trace.path.parent.iterdir()] == ["trace.json"]
    assert len(json.loads(trace.path.read_text())["traceEvents"]) == trace.events


def test_a_gzipped_trace_has_the_same_text(trace: Trace) -> None:
    packed = gzipped_trace(trace)
    assert gzip.decompress(packed.path.read_bytes()) == trace.path.read_bytes()
    assert (packed.size, packed.events) == (trace.size, trace.events)


def test_chunks_and_lines_have_every_event(trace: Trace) -> None:
    text, events = trace.path.read_bytes(), json.loads(trace.path.read_text())["traceEvents"]
    split = split_trace(trace)
    found = [json.loads(b"[" + text[start:end] + b"]") for start, end in json.loads(split.bounds.read_text())]
    assert len(found) > 1
    assert [event for piece in found for event in piece] == events
    assert [json.loads(line) for line in split.lines.read_text().splitlines()] == events


def test_a_bracket_after_the_events_does_not_end_them(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [ {"ph": "X", "a": "]"}, {"ph": "i"} ], "traceName": "[x]"}')
    text = path.read_bytes()
    assert [text[start:end] for start, end in chunk_bounds(path, text)] == [
        b' {"ph": "X", "a": "]"}, {"ph": "i"} '
    ]


def test_an_export_has_the_requested_size(tmp_path: Path) -> None:
    base = Base(name="simulated", path=simulated_export(tmp_path))
    made = amplified_export(tmp_path, base, 1)
    assert made.path.stat().st_size == made.size >= 1_000_000


def test_an_import_is_not_cached(trace: Trace) -> None:
    first, again = imported_run(trace), imported_run(trace)
    assert first.events == again.events > 0
    assert [path.name for path in again.store.iterdir() if path.is_dir()] == [again.run]


def test_inputs_are_cached_until_their_source_changes(tmp_path: Path) -> None:
    source, made = tmp_path / "source", []

    def make(draft: Path) -> dict[str, int]:
        made.append(draft)
        return {"count": len(made)}

    for content in ("a", "a", "b"):
        source.write_text(content)
        facts = cached(tmp_path / "folder", source, make, size=1)
    assert facts == cached(tmp_path / "folder", source, make, size=1) == {"count": 2}
    assert cached(tmp_path / "folder", source, make, size=2) == {"count": 3}


def test_every_peer_has_requirements() -> None:
    peers = requirements_of(LIST.read_text())
    assert {"orjson", "msgspec", "pysimdjson", "polars", "duckdb", "HolisticTraceAnalysis", "nsys-ai"} == set(
        peers
    )
    assert all(peers.values())
