"""What the benchmarks make to be measured is what it says."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from benchmarks.inputs import bases, exports, runs, traces
from benchmarks.inputs.bases import Base
from benchmarks.inputs.cut import borders
from benchmarks.inputs.kept import kept
from benchmarks.inputs.pieces import pieces
from benchmarks.parts.bases import RECORDED
from benchmarks.peers.environments import LIST, listed

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.inputs.traces import Trace


@pytest.fixture(scope="module", params=["simulated", "recorded"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("inputs")
    path = bases.trace(folder) if request.param == "simulated" else RECORDED
    return traces.plain(folder, Base(name=request.param, path=path), 9)


def test_a_trace_has_the_size_and_lies_alone(trace: Trace) -> None:
    assert 9_000_000 <= trace.size == trace.path.stat().st_size < 16_000_000
    assert [path.name for path in trace.path.parent.iterdir()] == ["trace.json"]
    assert len(json.loads(trace.path.read_text())["traceEvents"]) == trace.events


def test_gzipped_it_is_the_same(trace: Trace) -> None:
    packed = traces.gzipped(trace)
    assert gzip.decompress(packed.path.read_bytes()) == trace.path.read_bytes()
    assert (packed.size, packed.events) == (trace.size, trace.events)


def test_pieces_and_lines_hold_every_event(trace: Trace) -> None:
    text, events = trace.path.read_bytes(), json.loads(trace.path.read_text())["traceEvents"]
    cut = pieces(trace)
    found = [json.loads(b"[" + text[start:end] + b"]") for start, end in json.loads(cut.borders.read_text())]
    assert len(found) > 1
    assert [event for piece in found for event in piece] == events
    assert [json.loads(line) for line in cut.lines.read_text().splitlines()] == events


def test_a_bracket_in_what_follows_the_events_is_no_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [ {"ph": "X", "a": "]"}, {"ph": "i"} ], "traceName": "[x]"}')
    text = path.read_bytes()
    assert [text[start:end] for start, end in borders(path, text)] == [
        b' {"ph": "X", "a": "]"}, {"ph": "i"} '
    ]


def test_an_export_is_imported_with_as_many_rows(tmp_path: Path) -> None:
    base = Base(name="simulated", path=bases.export(tmp_path))
    made = exports.export(tmp_path, base, 1)
    assert made.path.stat().st_size == made.size >= 1_000_000


def test_an_imported_run_is_made_anew(trace: Trace) -> None:
    first, again = runs.imported(trace), runs.imported(trace)
    assert first.events == again.events > 0
    assert [path.name for path in again.store.iterdir() if path.is_dir()] == [again.run]


def test_what_was_made_is_kept_until_its_source_changes(tmp_path: Path) -> None:
    source, made = tmp_path / "source", []

    def make(draft: Path) -> dict[str, int]:
        made.append(draft)
        return {"count": len(made)}

    for content in ("a", "a", "b"):
        source.write_text(content)
        facts = kept(tmp_path / "folder", source, make, size=1)
    assert facts == kept(tmp_path / "folder", source, make, size=1) == {"count": 2}
    assert kept(tmp_path / "folder", source, make, size=2) == {"count": 3}


def test_every_peer_has_requirements() -> None:
    peers = listed(LIST.read_text())
    assert {"orjson", "msgspec", "pysimdjson", "polars", "duckdb", "HolisticTraceAnalysis", "nsys-ai"} == set(
        peers
    )
    assert all(peers.values())
