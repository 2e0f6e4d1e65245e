"""Import of damaged files: repaired, refused in one line, or kept with a diagnostic."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.integration.programs import MAIN
from tests.tiers import thinned
from tests.traces import COUNT, durations, imported, kernel_event, kernels_text
from tracekit.cli.main import run as tracekit
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

GOOD = kernels_text()
EVENTS = json.dumps([kernel_event(i) for i in range(COUNT)])

NOISY = kernels_text(600)


def _flipped(data: bytes, position: int) -> bytes:
    """The data with all bits of one byte turned round."""
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position:][1:]


def inflating(begin: bytes, repeated: bytes) -> bytes:
    """A gzip file of a few kB: a text that ends in 80 MiB of one byte, in members of 1 MiB."""
    return gzip.compress(begin) + 80 * gzip.compress((1 << 20) * repeated)


REFUSED = {
    "empty": b"",
    "only white space": b" \n\t ",
    "not JSON": b"hello world",
    "zeros": b"\0" * 1000,
    "a number": b"3",
    "a string": b'"abc"',
    "JSON without events": b'{"a": 1}',
    "a list of numbers": b"[1, 2]",
    "ends before the events": b'{"traceEve',
    "no events": b'{"traceEvents": []}',
    "no events in an array": b"[]",
    "metadata alone": b'{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "ts": 0}]}',
    "SQLite": b"SQLite format 3\0....",
    "UTF-16": GOOD.encode("utf-16"),
    "xz": lzma.compress(GOOD.encode()),
    "bzip2": bz2.compress(GOOD.encode()),
    "an empty gzip file": gzip.compress(b""),
    "a gzip header and noise": gzip.compress(GOOD.encode())[:12] + bytes(range(255, -1, -1)),
    "a gzip file that inflates a thousandfold": inflating(GOOD[:-2].encode(), b" "),
    "a name that inflates a thousandfold": inflating(b'[{"name": "', b"a"),
    "phases that are not read": json.dumps([kernel_event(0, ph="B"), kernel_event(0, ph="E")]).encode(),
}
SLOWLY_REFUSED = {"a name that inflates a thousandfold"}

SAVED = {
    "two traces": (GOOD.encode() * 2, {"trailing_data"}),
    "two gzipped traces": (gzip.compress(GOOD.encode()) * 2, {"trailing_data"}),
    "two lists": (EVENTS.encode() * 2, {"truncated", "dropped_events"}),
    "text after the trace": (GOOD.encode() + b" hello", {"trailing_data"}),
    "bytes after a gzip file": (gzip.compress(GOOD.encode()) + b"hello", {"trailing_data"}),
    "a gzip file after padding": (
        gzip.compress(GOOD.encode()) + bytes(200_000) + gzip.compress(b"hello"),
        {"trailing_data"},
    ),
    "cut in the middle": (GOOD[: len(GOOD) // 2].encode(), {"truncated", "dropped_events"}),
    "cut at the closing bracket": (EVENTS[:-1].encode(), {"truncated"}),
    "cut gzip": (gzip.compress(GOOD.encode())[:-20], {"truncated", "dropped_events"}),
    "NaN durations": (
        GOOD.replace('"dur": 5.25', '"dur": NaN', 3).encode(),
        {"repaired_events", "bad_duration"},
    ),
    "infinite durations": (
        GOOD.replace('"dur": 5.25', '"dur": -Infinity', 3).encode(),
        {"repaired_events", "bad_duration"},
    ),
    "NaN time stamp": (
        GOOD.replace('"ts": 1000020.5', '"ts": NaN').encode(),
        {"repaired_events", "bad_timestamp"},
    ),
    "negative durations": (GOOD.replace('"dur": 5.25', '"dur": -5.25', 3).encode(), {"bad_duration"}),
    "absent durations": (GOOD.replace('"dur": 5.25, ', "", 3).encode(), {"bad_duration"}),
    "control characters": (GOOD.replace('"k3"', '"k\x013\n\t"').encode(), {"repaired_events"}),
    "invalid escapes": (GOOD.replace('"k5"', '"C:\\Users\\qk5"').encode(), {"repaired_events"}),
    "bad UTF-8": (GOOD.encode().replace(b'"k4"', b'"k\xff\xfe4"'), {"repaired_events"}),
    "arguments that are a list": (
        GOOD.replace('"args": {', '"args": [1], "more": {', 2).encode(),
        {"repaired_events"},
    ),
    "a missing brace": (GOOD.replace('}}, {"ph"', '}, {"ph"', 1).encode(), {"dropped_events"}),
}

NEGATIVE = {
    "a counter sample at a negative time": '{"ph": "C", "name": "n", "pid": 0, "ts": -5, "args": {"v": 1}}, ',
    "a memory event at a negative time": '{"ph": "i", "cat": "cpu_instant_event", '
    '"name": "[memory]", "s": "t", "pid": 1, "tid": 1, "ts": -5, '
    '"args": {"Bytes": 512, "Addr": 1, "Device Type": 1, "Device Id": 0}}, ',
}

SAVED |= {
    name: (GOOD.replace("[{", "[" + event + "{", 1).encode(), {"bad_timestamp"})
    for name, event in NEGATIVE.items()
}

SAVED |= {
    "a gzip checksum that is wrong": (_flipped(gzip.compress(GOOD.encode()), -6), {"truncated"}),
    "gzip damaged near its end": (
        _flipped(gzip.compress(NOISY.encode()), -400),
        {"truncated", "dropped_events"},
    ),
    "a bracket too many": (GOOD.replace("}}, {", "}}, ], {", 1).encode(), {"dropped_events"}),
    "a quote too many": (GOOD.replace('"k3"', '"k"3"').encode(), {"dropped_events"}),
    "deeply nested arguments": (
        GOOD.replace('"grid"', '"x": ' + "[" * 100_000 + "]" * 100_000 + ', "grid"', 1).encode(),
        {"dropped_events"},
    ),
    "a number of a million digits": (
        GOOD.replace('"ts": 1000020.5', '"ts": 1e999990').encode(),
        {"bad_timestamp"},
    ),
    "a number beyond all bounds": (
        GOOD.replace('"dur": 5.25', '"dur": 1e9999999999', 2).encode(),
        {"bad_duration"},
    ),
    "half a surrogate pair": (GOOD.replace('"k3"', r'"k\ud800"').encode(), {"repaired_events"}),
    "words that are lists": (GOOD.replace('"cat": "kernel"', '"cat": ["a"]', 2).encode(), set()),
}

HARMLESS = {
    "plain": GOOD.encode(),
    "gzipped": gzip.compress(GOOD.encode()),
    "two gzip members": gzip.compress(GOOD[:500].encode()) + gzip.compress(GOOD[500:].encode()),
    "gzip with padding": gzip.compress(GOOD.encode()) + b"\0" * 100,
    "a bare array": EVENTS.encode(),
    "no names": GOOD.replace('"k3"', "null").encode(),
    "shapes that are not text": GOOD.encode().replace(b'"grid"', b'"Input type": ["\xff"], "grid"'),
    "byte order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "time stamps as text": GOOD.replace('"ts": 1000020.5', '"ts": "1000020.5"').encode(),
    "a trailing comma": GOOD.replace("]", ",]").replace("3,]", "3]").replace("1,]", "1]").encode(),
    "null among the events": GOOD.replace("[{", "[null, 3, {", 1).encode(),
    "no arguments": GOOD.replace('"args": {', '"args": null, "more": {', 2).encode(),
    "names that are not text": GOOD.replace('"k3"', "3").replace('"k4"', '{"a": 1}').encode(),
    "lists of objects in arguments": GOOD.replace('"grid"', '"l": [{"ph": 1}, {"ph": 2}], "grid"').encode(),
    "text that looks like events": GOOD.replace('"k3"', '"}, {\\"ph\\": [}]"').encode(),
    "old ways to say where": GOOD.replace('"pid": 0', '"pid": ""')
    .replace('"device": 0', '"device": "0"')
    .replace('"tid": 7', '"tid": "stream 7"')
    .replace('"stream": 7, ', "")
    .encode(),
    "much before the events": json.dumps(
        {"before": [{"a": '},{ "traceEvents": ['}] * 1000, **json.loads(GOOD)}
    ).encode(),
}


@pytest.mark.parametrize(
    "name", thinned(REFUSED, default={*REFUSED} - {"a name that inflates a thousandfold"})
)
def test_unusable_files_get_a_one_line_error(
    name: str, store: Store, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(REFUSED[name])
    assert tracekit(["import", str(path), "--store", str(store.path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tracekit: ")
    assert err.count("\n") == 1
    assert left_in(store) == []


@pytest.mark.parametrize("name", SAVED)
def test_partly_damaged_files_are_imported_with_diagnostics(name: str, store: Store, tmp_path: Path) -> None:
    data, codes = SAVED[name]
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    run = imported(store, path)
    assert {d.code for d in run.meta.diagnostics if d.level != "info"} == codes
    assert len(durations(run)) >= COUNT // 2 - 1
    assert set(durations(run)) <= {5250, 0}


@pytest.mark.parametrize("name", HARMLESS)
def test_unusual_files_are_imported_without_diagnostics(name: str, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(HARMLESS[name])
    run = imported(store, path)
    assert [d.code for d in run.meta.diagnostics if d.level != "info"] == []
    assert durations(run) == [5250] * COUNT
    frame = run.table("device_intervals", columns=[C.START_NS, C.DEVICE, C.STREAM])
    kernels = frame[frame[C.STREAM].notna()]
    assert kernels[C.START_NS].tolist() == [10_000 * i for i in range(COUNT)]
    assert set(kernels[C.DEVICE]) == {0}
    assert set(kernels[C.STREAM]) == {7}


def test_standard_input(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(gzip.compress(GOOD.encode()))))  # type: ignore[arg-type]
    monkeypatch.setattr("sys.stdin", stdin)
    assert tracekit(["import", "-", "--store", str(store.path)]) == 0
    (run,) = store.runs()
    assert capsys.readouterr().out == f"{run.id}\n"
    assert durations(run) == [5250] * COUNT


def test_an_interrupted_import_leaves_no_files(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tracekit.ingest.importer.local.write", interrupt)
    path = tmp_path / "trace.json"
    path.write_text(GOOD)
    assert tracekit(["import", str(path), "--store", str(store.path)]) == 130
    assert capsys.readouterr().out == ""
    assert left_in(store) == []


def left_in(store: Store) -> list[str]:
    if not store.path.exists():
        return []
    return [path.name for path in store.path.iterdir() if path.name != ".gitignore"]


Capture = pytest.CaptureFixture[str]


def test_metadata_is_read_though_text_follows(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(GOOD.rstrip()[:-1] + ', "tracekit_tool": "own"}' + GOOD)
    run = imported(store, path)
    assert run.meta.collector.options["tool"] == "own"
    assert any(f"{len(GOOD)} bytes with events follow" in note.message for note in run.meta.diagnostics)


def test_a_tar_archive_and_an_empty_path_are_named(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, "trace.json")
    assert tracekit(["import", str(path), "", "--store", str(store.path)]) == 2
    err = capsys.readouterr().err
    assert "is a tar archive" in err
    assert "the path is empty" in err


def test_no_warning_of_python_reaches_a_user(tmp_path: Path) -> None:
    events = [kernel_event(1, ts=5, dur=-1), kernel_event(2, ts=9, dur=0), {"ph": "C", "ts": 3, "args": {}}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    command = [sys.executable, "-W", "error", "-c", MAIN, "findings", str(path)]
    environment = {**os.environ, "TRACEKIT_STORE": str(tmp_path / "store")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
