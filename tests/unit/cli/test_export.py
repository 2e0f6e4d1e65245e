from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.builders import host, kernel, make_run, step
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Done
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

BIG = 2**60 + 1


@pytest.fixture
def run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return make_run(
        store.path,
        steps=[step(1, 0, 1_000), step(2, 1_000, 2_000)],
        host_intervals=[host("a", 0, 500, **{C.STEP: 1}), host('b,"c"\n', 1_100, 1_500, **{C.STEP: 2})],
        device_intervals=[kernel(100, 400, **{C.STEP: 1}), kernel(1_200, 2_600, **{C.STEP: 2, C.BYTES: BIG})],
    )


def names(text: bytes) -> list[str]:
    return [one["name"] for one in json.loads(text)["traceEvents"] if one["ph"] == "X"]


def test_a_trace_is_packed_where_its_name_says_so(tracekit: Callable[..., Done], run: Run) -> None:
    done = tracekit("export")
    assert (done.code, done.out, done.err) == (0, f"{run.id}.json.gz\n", "")
    assert len(names(gzip.decompress(Path(f"{run.id}.json.gz").read_bytes()))) == 6
    tracekit("export", "-o", "plain.json")
    assert len(names(Path("plain.json").read_bytes())) == 6


def test_steps_cut_the_time_also_on_the_device(tracekit: Callable[..., Done], run: Run) -> None:
    assert tracekit("export", "--steps", "2", "-o", "two.json").code == 0
    assert sorted(names(Path("two.json").read_bytes())) == ["ProfilerStep#2", 'b,"c"\n', "kernel"]
    done = tracekit("export", "--steps", "7")
    assert (done.code, done.err) == (2, f"tracekit: run {run.id} has no step 7; its steps: 1 to 2\n")
    for words in ("x", "1:", ":2", "1:2:3"):
        assert tracekit("export", "--steps", words).code == 2


@pytest.mark.parametrize("name", ["tables", "tables.zip"])
def test_csv_is_exact_and_a_table_a_file(tracekit: Callable[..., Done], run: Run, name: str) -> None:
    assert tracekit("export", "--to", "csv", "-o", name).out == f"{name}\n"
    if name.endswith("zip"):
        with zipfile.ZipFile(name) as archive:
            files = {one: archive.read(one).decode() for one in archive.namelist()}
    else:
        files = {one.name: one.read_text() for one in Path(name).iterdir()}
    assert set(files) == {"device_intervals.csv", "host_intervals.csv", "steps.csv"}
    device = list(csv.DictReader(io.StringIO(files["device_intervals.csv"])))
    assert list(device[0]) == TABLES["device_intervals"].arrow.names
    assert [(row[C.BYTES], row[C.STREAM]) for row in device] == [("", ""), (str(BIG), "")]
    assert [row[C.NAME] for row in csv.DictReader(io.StringIO(files["host_intervals.csv"]))][1] == 'b,"c"\n'


def test_parquet_is_plain_and_the_same(tracekit: Callable[..., Done], run: Run) -> None:
    assert tracekit("export", "--to", "parquet", "-o", "out").code == 0
    for name in ("device_intervals", "host_intervals", "steps"):
        table = pq.read_table(f"out/{name}.parquet")
        assert table.to_pylist() == run.arrow(name).to_pylist()
        assert all(str(field.type) in {"string", "int64", "int32", "double"} for field in table.schema)
    assert json.loads(Path("out/run.json").read_text())["run_id"] == run.id


def test_nothing_is_overwritten_unless_told(tracekit: Callable[..., Done], run: Run) -> None:
    Path("there").mkdir()
    Path("there/mine").write_text("x")
    done = tracekit("export", "--to", "parquet", "-o", "there")
    assert (done.code, Path("there/mine").read_text()) == (2, "x")
    assert "--force" in done.err
    done = tracekit("export", "--to", "parquet", "-o", "there", "--force")
    assert (done.code, Path("there/mine").read_text()) == (2, "x")
    Path("there/mine").unlink()
    assert tracekit("export", "--to", "parquet", "-o", "there", "--force").code == 0
    assert tracekit("export", "--to", "csv", "-o", "there", "--force").code == 0
    assert {one.suffix for one in Path("there").iterdir()} == {".csv"}


def test_what_fails_leaves_nothing(tracekit: Callable[..., Done], run: Run) -> None:
    (run.path / "host_intervals.parquet").unlink()
    for target in ("perfetto", "csv", "parquet"):
        assert tracekit("export", "--to", target, "-o", "out").code == 2
    assert tracekit("export", "-o", "no/such/folder/x.json").code == 2
    assert [one.name for one in Path().iterdir()] == ["store"]


@pytest.mark.slow
def test_a_trace_goes_to_stdout(run: Run) -> None:
    asked = [
        sys.executable,
        "-c",
        "from tracekit.cli.main import main; main()",
        "export",
        str(run.path),
        "-o",
        "-",
    ]
    assert len(names(subprocess.run(asked, check=True, capture_output=True).stdout)) == 6
    assert subprocess.run([*asked, "--to", "csv"], check=False, capture_output=True).returncode == 2
