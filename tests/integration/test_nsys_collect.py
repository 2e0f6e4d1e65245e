"""`tracekit collect --collector nsys` from torch to a run in the store."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.nsys import calls, install
from tracekit.cli.main import run as tracekit
from tracekit.runs.run import Run
from tracekit.runs.toolchain import find_nsys

if TYPE_CHECKING:
    from tracekit.runs.store import Store

pytest.importorskip("torch")
EXPORTS = Path(__file__).parents[2] / ".." / "shared" / "nsys"
OPTIONS = (
    "--collector",
    "nsys",
    "--workload",
    "mnist_cnn",
    "--device",
    "cpu",
    "--batch-size",
    "4",
    "--threads",
    "1",
)


def collected(store: Store, capfd: pytest.CaptureFixture[str], *more: str) -> Run:
    assert tracekit(["collect", *OPTIONS, *more, "--format", "json", "--store", str(store.path)]) == 0
    [name] = json.loads(capfd.readouterr().out)["runs"]
    return Run(store.path / name)


def test_a_workload_becomes_a_run(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    export = EXPORTS / "0x822a5b87__test-cuda" / "report1.sqlite"
    if not export.exists():
        pytest.skip("no recorded export is here")
    nsys = install(tmp_path / "bin", export=export)
    monkeypatch.delenv("NSYS_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{nsys.parent}{os.pathsep}{os.environ['PATH']}")
    run = collected(store, capfd, "--steps", "2", "--keep-trace")
    assert run.meta.collector.name == "nsys"
    assert run.meta.collector.version == "2025.1.1.103"
    assert run.meta.timings is not None
    assert len(run.meta.timings.step_ns) == 2
    assert run.meta.environment["torch"]
    assert run.rows("device_intervals") > 0
    assert run.rows("counters") > 0
    assert (run.path / "trace.nsys-rep").read_text() == "report"
    assert [path.name for path in store.path.iterdir() if path.name != ".gitignore"] == [run.id]
    assert [words[0] for words in calls(nsys) if "--help" not in words] == ["--version", "profile", "export"]


def test_the_real_one_records_a_host(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    if find_nsys() is None:
        pytest.skip("no nsys is here")
    run = collected(store, capfd, "--steps", "2")
    assert run.rows("host_intervals") > 0
