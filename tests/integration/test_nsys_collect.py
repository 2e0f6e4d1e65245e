"""`tracekit collect --collector nsys` from torch to a run in the store."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tracekit.collectors import workload_process
from tracekit.collectors.nsys import collector

from samples.simulator import nsys as simulated
from samples.simulator.examples import training
from tests.nsys import KIND, calls, install, recorded
from tests.nsys_help import CURRENT
from tracekit.cli.main import run as tracekit
from tracekit.recording.collector import Request, silent
from tracekit.runs.run import Run
from tracekit.runs.toolchain import find_nsys

if TYPE_CHECKING:
    from tracekit.runs.store import Store

pytest.importorskip("torch")
EXPORTS = Path(__file__).parents[2] / ".." / "shared" / "nsys"
PLAYED = Path(__file__).with_name("nsys_measured.py")
ON_CUDA = Path(__file__).with_name("nsys_on_cuda.py")
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


@pytest.mark.parametrize("played", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_workload_becomes_a_run(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *,
    played: bool,
) -> None:
    """The measured processes are played, with a simulated export, or run torch, with a recorded one."""
    export = EXPORTS / "0x822a5b87__test-cuda" / "report1.sqlite"
    if played:
        export = simulated.write(training(), tmp_path / "made.sqlite")
        command = (sys.executable, str(PLAYED), "ends well")
        monkeypatch.setattr(collector, "_MEASURED", command)
        monkeypatch.setattr(workload_process, "COMMAND", command)
    elif not export.exists():
        pytest.skip("no recorded export is here")
    nsys = install(tmp_path / "bin", export=export)
    monkeypatch.delenv("NSYS_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{nsys.parent}{os.pathsep}{os.environ['PATH']}")
    run = collected(store, capfd, "--steps", "2", "--keep-trace")
    assert run.meta.collector.name == "nsys"
    assert run.meta.collector.version == CURRENT
    assert run.meta.timings is not None
    assert len(run.meta.timings.step_ns) == 2
    assert run.meta.environment["python"]
    assert run.rows("device_intervals") > 0
    ranges = json.loads((run.path / "trace.nsys-rep").read_text())
    if not played:
        assert run.meta.environment["torch"]
        assert run.rows("counters") > 0
        assert ranges == []  # this torch marks no ops
    assert [path.name for path in store.path.iterdir() if path.name != ".gitignore"] == [run.id]
    assert [words[0] for words in calls(nsys) if "--help" not in words] == ["--version", "profile", "export"]


@pytest.mark.slow
def test_on_a_gpu_the_capture_range_has_the_steps_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys = install(tmp_path / "bin")
    monkeypatch.delenv("NSYS_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{nsys.parent}{os.pathsep}{os.environ['PATH']}")
    command = (sys.executable, str(ON_CUDA))
    monkeypatch.setattr(collector, "_MEASURED", command)
    monkeypatch.setattr(workload_process, "COMMAND", command)
    directory = store.path / ".tmp-1-recording"
    directory.mkdir(parents=True)
    request = Request(workload="mnist_cnn", batch_size=4, resolution=28, steps=2, warmup=1, threads=1)
    recording = collector.NsysCollector().record(request, directory, progress=silent)
    assert recording.device == "cuda"
    assert recording.timings is not None
    assert recording.timings.clock == "cuda_event"
    assert recorded(recording.traces[0]) == {
        KIND + "KERNEL": ["gemm", "gemm"],
        "NVTX_EVENTS": ["ProfilerStep#1", "ProfilerStep#2"],
    }


def test_the_real_one_records_a_host(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    if find_nsys() is None:
        pytest.skip("no nsys is here")
    run = collected(store, capfd, "--steps", "2")
    assert run.rows("host_intervals") > 0
