"""Stored runs that were changed: commands refuse them or give the right answer, and `verify` notices."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fuzz.case import Case
from fuzz.commands import HERE
from fuzz.readers.store import RUN, made_files, read
from tracekit.cli.main import run as run_command
from tracekit.schema import SCHEMA_VERSION, VERSION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Files = dict[str, bytes]
META, DEVICE, HOST = "run.json", "device_intervals.parquet", "host_intervals.parquet"
COMMANDS = (
    ("runs", "--format", "json"),
    ("show", "latest"),
    ("analyze", "latest", "--format", "json"),
    ("findings", "latest", "--format", "json"),
    ("diff", "latest", "latest", "--format", "json"),
    ("check", "--against", "fuzzed", "--label", "fuzzed"),
    ("noise", "--format", "json"),
    ("query", "SELECT count(*) AS n, sum(dur_ns) AS ns FROM device_intervals", "--format", "json"),
    ("export", "latest", "-o", "-"),
    ("export", "latest", "--to", "csv", "-o", f"{HERE}/csv"),
    ("report", "latest", "--analyses", "kernels,integrity", "-o", f"{HERE}/report.html"),
    ("gc",),
)


def _set(*path: Any, to: Any) -> Callable[[Files], None]:
    """Set a value of `run.json`; without a value, remove it."""

    def change(files: Files) -> None:
        content = json.loads(files[META])
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        inner.pop(path[-1]) if to is ... else inner.__setitem__(path[-1], to)
        files[META] = json.dumps(content, indent=2).encode()

    return change


def _rows(name: str, change: Callable[[pa.Table], pa.Table]) -> Callable[[Files], None]:
    """Write a table anew."""

    def rewrite(files: Files) -> None:
        stream = io.BytesIO()
        pq.write_table(change(pq.read_table(io.BytesIO(files[name]))), stream)
        files[name] = stream.getvalue()

    return rewrite


def _column(name: str, column: str, change: Callable[[Any], Any]) -> Callable[[Files], None]:
    def replace(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(column), column, change(table[column]))

    return _rows(name, replace)


def _content(name: str, change: Callable[[bytes], bytes]) -> Callable[[Files], None]:
    return lambda files: files.__setitem__(name, change(files[name]))


def _swap(files: Files) -> None:
    files[DEVICE], files[HOST] = files[HOST], files[DEVICE]


def _of_version(version: int) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.replace_schema_metadata({VERSION_KEY: str(version).encode()})


MUTATIONS: dict[str, Callable[[Files], None]] = {
    "no seal": _set("seal", to=...),
    "another seal": _set("seal", to="0" * 64),
    "another label": _set("label", to="x"),
    "label with an escape": _set("label", to="\x1b[2J\u202ex"),
    "label that is a number": _set("label", to=5),
    "another run": _set("run_id", to="20200101T000000Z-other-000000"),
    "run outside": _set("run_id", to="../../etc"),
    "created later": _set("created_at", to="2999-01-01T00:00:00Z"),
    "created before": _set("created_at", to="0001-01-01T00:00:00Z"),
    "created never": _set("created_at", to="yesterday"),
    "older schema": _set("schema_version", to=SCHEMA_VERSION - 1),
    "newer schema": _set("schema_version", to=SCHEMA_VERSION + 1),
    "schema that is a word": _set("schema_version", to="one"),
    "more rows said": _set("tables", "device_intervals", "rows", to=10**9),
    "negative rows said": _set("tables", "device_intervals", "rows", to=-1),
    "another digest": _set("tables", "device_intervals", "sha256", to="0" * 64),
    "a table that is not there": _set("tables", "../secret", to={"rows": 1, "bytes": 1, "sha256": "0" * 64}),
    "no tables": _set("tables", to={}),
    "tables that are a list": _set("tables", to=[]),
    "no time": _set("t0_unix_ns", to=None),
    "time beyond 64 bits": _set("t0_unix_ns", to=2**70),
    "diagnostics of another kind": _set("diagnostics", to=[{"level": "loud", "code": "x", "message": "y"}]),
    "a GPU that is a word": _set("environment", "gpus", to=["A100"]),
    "swapped tables": _swap,
    "no device table": lambda files: files.__delitem__(DEVICE),
    "no host table": lambda files: files.__delitem__(HOST),
    "empty table": _content(DEVICE, lambda _: b""),
    "half a table": _content(DEVICE, lambda content: content[: len(content) // 2]),
    "a bit of a page": _content(
        DEVICE, lambda content: content[:99] + bytes([content[99] ^ 1]) + content[100:]
    ),
    "a bit of a footer": _content(DEVICE, lambda content: content[:-40] + b"\xff" + content[-39:]),
    "text in place of a table": _content(HOST, lambda _: b"{}" * 99),
    "no rows": _rows(DEVICE, lambda table: table.slice(0, 0)),
    "rows in reverse": _rows(DEVICE, lambda table: table.take(list(range(len(table)))[::-1])),
    "rows twice": _rows(DEVICE, lambda table: pa.concat_tables([table, table])),
    "a column less": _rows(DEVICE, lambda table: table.drop_columns(["dur_ns"])),
    "a column more": _rows(HOST, lambda table: table.append_column("x", pa.array([1] * len(table)))),
    "older table": _rows(DEVICE, _of_version(SCHEMA_VERSION - 1)),
    "newer table": _rows(DEVICE, _of_version(SCHEMA_VERSION + 1)),
    "durations as text": _column(DEVICE, "dur_ns", lambda values: pc.cast(values, pa.string())),
    "negative durations": _column(DEVICE, "dur_ns", pc.negate),
    "launches of other rows": _column(DEVICE, "launch_row", lambda values: pc.add(values, 10**6)),
    "parents in a circle": _column(HOST, "parent_row", lambda values: pa.array(range(len(values)))),
}


def change_files(name: str) -> Files:
    files = {path: content for path, content in made_files(1).items() if not path.startswith(".")}
    MUTATIONS[name](files)
    return {f"store/{RUN}/{path}": content for path, content in files.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_commands_refuse_a_changed_run_or_are_right(name: str, tmp_path: Path) -> None:
    files = change_files(name)
    for number, words in enumerate(COMMANDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        read(Case(files=files, main="store", words=words), folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_run_is_not_whole(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Case(files=change_files(name), main="store").write(tmp_path)
    assert run_command(["verify", "--store", str(store)]) != 0
    assert capsys.readouterr()


def test_a_run_as_it_was_stored_is_whole(tmp_path: Path) -> None:
    files = {f"store/{RUN}/{path}": content for path, content in made_files(1).items()}
    store = Case(files=files, main="store").write(tmp_path)
    assert run_command(["verify", "--store", str(store)]) == 0
