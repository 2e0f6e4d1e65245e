"""Import of hostile traces: bounded memory, time and messages."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from tests.tiers import thinned
from tests.traces import imported, kernel_event, kernels_text
from tracekit.analysis.kernel_names import COMMUNICATION, MAX_SEARCHED, matches
from tracekit.cli.main import run as tracekit
from tracekit.errors import UnusableInputError
from tracekit.ingest.kineto import events, split
from tracekit.ingest.kineto.columns import nanoseconds
from tracekit.ingest.spool import text_columns
from tracekit.runs.meta import Diagnostic, Level
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.runs.store import Store

MOST_MIB = 700
"""What a process may have had at most: 150 MiB of libraries, and pieces of 16 MiB in all their forms."""
MEASURED = """
import re, sys
from pathlib import Path
from tracekit.cli.main import run
code = run(sys.argv[1:])
# not ru_maxrss, which counts what the parent had
own = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print("peak", int(own[1]) >> 10)
sys.exit(code)
"""
LONG = 40 << 20


def block(text: bytes) -> bytes:
    """A block as bgzip writes them, of however much text."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = packer.compress(text) + packer.flush()
    head = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff" + struct.pack("<H2sHH", 6, b"BC", 2, len(data) + 25)
    return head + data + struct.pack("<II", zlib.crc32(text), len(text))


def _blocks() -> bytes:
    return block(b"[") + block(b" " * (48 << 20)) * 20


def _small_blocks() -> bytes:
    return block(b"[") + block(b" " * 65536) * 20_000


def _name() -> bytes:
    return kernels_text().encode().replace(b'"k3"', b'"' + b"a" * LONG + b'"')


def _escapes() -> bytes:
    return kernels_text()[:-1].encode() + b',"a": "' + b'\\"' * (LONG // 5) + b'\x01"}'


HOSTILE = [
    (_blocks, "blocks.json.gz", 2),
    (_small_blocks, "small.json.gz", 2),
    (_name, "name.json", 0),
    (_escapes, "escapes.json", 0),
]


@pytest.mark.parametrize(("made", "name", "code"), thinned(HOSTILE, default=HOSTILE[:1]))
def test_memory_stays_bounded(made: Callable[[], bytes], name: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(made())
    command = [sys.executable, "-c", MEASURED, "import", str(path), "--store", str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert int(done.stdout.split()[-1]) < MOST_MIB


def _span(kind: str, at: int, count: int) -> tuple[int, int]:
    """Start and duration of an event of so many."""
    return {
        "equal": (5, 1),
        "ties": (5, at * 7919 % 100_003),
        "reversed": (count - at, 1),
        "nested": (at, 2 * (count - at)),
        "sawtooth": (at * 7919 % 10_007, at * 31 % 5_000),
    }[kind]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "category"),
    [
        ("equal", "cpu_op"),
        ("ties", "cpu_op"),
        ("reversed", "cpu_op"),
        ("nested", "cpu_op"),
        ("sawtooth", "cpu_op"),
        ("equal", "kernel"),
    ],
)
def test_memory_does_not_grow_with_the_rows_whatever_their_times(
    kind: str, category: str, tmp_path: Path
) -> None:
    peaks = [_peak(tmp_path, kind, category, count) for count in (300_000, 1_200_000)]
    assert max(peaks) < MOST_MIB // 2
    assert peaks[1] - peaks[0] < 60, "the larger trace has 0.9 million rows more"


def _peak(folder: Path, kind: str, category: str, count: int) -> int:
    """Most memory of an import of so many events, in MiB."""
    path, store = folder / "trace.json.gz", folder / str(count)
    args = ',"args":{"device":0,"stream":7}' if category == "kernel" else ""
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("[")
        for at in range(count):
            start, duration = _span(kind, at, count)
            file.write(
                f'{"," * (at > 0)}{{"ph":"X","cat":"{category}","name":"a","pid":1,"tid":1,'
                f'"ts":{start},"dur":{duration}{args}}}'
            )
        file.write("]")
    command = [sys.executable, "-c", MEASURED, "import", str(path), "--store", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def test_many_empty_gzip_members_are_skipped(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"", mtime=0) * 100_000 + gzip.compress(kernels_text(5).encode()))
    assert imported(store, path).rows("device_intervals") == 9  # five kernels and the gaps between them


def test_empty_blocks_are_skipped(store: Store, tmp_path: Path) -> None:
    text = kernels_text(5).encode()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(block(text[:99]) + block(b"") * 3000 + block(text[99:]) + block(b""))
    assert imported(store, path).rows("device_intervals") == 9


@pytest.mark.parametrize("text", [b"-9223372036854775.808", b"9223372036854775.807", b"2305843009213693.952"])
def test_times_whose_differences_would_overflow_are_unusable(text: bytes) -> None:
    found, usable = nanoseconds([text, b"2305843009213693.951"])
    assert usable.tolist() == [False, True]
    assert found.tolist() == [0, (1 << 61) - 1]


@pytest.mark.parametrize("base", [1 << 61, -1, 1 << 63, 10**30])
def test_base_times_beyond_the_limit_are_ignored(base: int) -> None:
    assert events.top_level(b'{"baseTimeNanoseconds": %d, "traceEvents": [' % base, b"]}").base_ns == 0


def test_extreme_times_are_set_aside_without_an_overflow(store: Store, tmp_path: Path) -> None:
    far = "2305843009213693.951"
    events = json.dumps([kernel_event(0, ts="A", dur="B"), kernel_event(1, ts="C", dur="B")])
    text = events.replace('"A"', f"-{far}").replace('"B"', far).replace('"C"', far)
    path = tmp_path / "trace.json"
    path.write_text('{"baseTimeNanoseconds": 2305843009213693951, "traceEvents": ' + text + "}")
    run = imported(store, path)
    found = run.arrow("device_intervals", columns=[C.START_NS, C.DUR_NS]).to_pydict()
    assert found == {C.START_NS: [0], C.DUR_NS: [(1 << 61) - 1]}
    assert "far_times" in {note.code for note in run.meta.diagnostics}


def test_too_many_distinct_strings_are_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_columns, "MAX_TEXT_BYTES", 1000)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([kernel_event(n, name=f"{n}" * 100) for n in range(50)]))
    with pytest.raises(UnusableInputError, match="distinct strings in one column"):
        imported(store, path)


def test_text_before_the_events_is_limited(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"before": "x" * (1 << 20), "traceEvents": [kernel_event(0)]}))
    assert imported(store, path).rows("device_intervals") == 1
    monkeypatch.setattr(split, "HEADER_LIMIT", 1 << 19)
    with pytest.raises(UnusableInputError, match="trace"):
        imported(store, path)


def test_invalid_metadata_is_repaired_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    header, after = b'{"a\xff": 1, "baseTimeNanoseconds": 7, "traceEvents": [', b"]}"
    assert events.top_level(header, after).base_ns == 7
    monkeypatch.setattr(events, "MAX_REPAIRED_BYTES", 20)
    assert events.top_level(header, after).base_ns == 0


def test_long_names_are_classified_by_their_first_characters() -> None:
    names = pd.Series(
        [f"{'x' * before}ncclDevKernel_AllReduce" for before in (0, MAX_SEARCHED)], dtype="category"
    )
    assert matches(names, COMMUNICATION).tolist() == [True, False]


def test_many_categories_are_listed_in_one_line(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    hostile = [kernel_event(n, cat=f"\x1b[2J{n}" + "c" * 100) for n in range(10_000)]
    path.write_text(json.dumps([kernel_event(0), *hostile]))
    said = [note.message for note in imported(store, path).meta.diagnostics]
    assert any("and 9990 more" in message for message in said)
    assert all(len(message) < 2_000 and message.isprintable() for message in said)


def test_control_characters_of_file_names_are_escaped(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / os.fsdecode(b"\x1b[2J\x1b]0;mine\x07\n\xff.json")
    path.write_text("no trace")
    assert tracekit(["import", str(path), "--store", str(store.path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert "\\x1b[2J" in err


def test_a_message_is_of_bounded_length() -> None:
    assert len(Diagnostic(Level.INFO, "x", "n" * 1_000_000).message) < 2_100
    assert len(str(UnusableInputError("n" * 1_000_000, hint="h" * 1_000_000))) < 4_200
