"""`tracekit collect`, for real: a child process, torch's profiler, and a run in the store."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.traces import table
from tracekit import analyze
from tracekit.cli.main import run as tracekit
from tracekit.collecting import KEPT_TRACE, Request, collect
from tracekit.errors import CollectionError, MissingDependencyError, PluginError, UnusableInputError
from tracekit.schema import C
from tracekit.store import Store

pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.run import Run

SMALL = {"workload": "mnist_cnn", "batch_size": 4, "steps": 2, "warmup": 1, "threads": 1, "device": "cpu"}


def left_in(store: Store) -> list[str]:
    return [path.name for path in store.path.iterdir()] if store.path.exists() else []


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run that several tests look at from different sides."""
    place = Store(tmp_path_factory.mktemp("collected") / "store")
    return collect(place, Request(**SMALL, zero_grad="zero"), label="mine", keep_trace=True)


def test_a_run_knows_what_ran_and_how(collected: Run) -> None:
    meta = collected.meta
    assert meta.workload is not None
    assert meta.workload["name"] == "mnist_cnn"
    assert (meta.workload["batch_size"], meta.workload["threads"], meta.workload["device"]) == (4, 1, "cpu")
    assert meta.timings is not None
    assert (len(meta.timings.step_ns), len(meta.timings.warmup_ns)) == (2, 1)
    assert min(meta.timings.step_ns) > 0
    assert meta.timings.clock == "perf_counter"
    assert meta.label == "mine"
    assert meta.environment["torch"]
    assert meta.fingerprint["workload"] == "mnist_cnn"
    assert meta.command[:4] == ["tracekit", "collect", "--workload", "mnist_cnn"]
    assert "--zero-grad" in meta.command


def test_its_tables_hold_the_profile(collected: Run) -> None:
    assert table(collected, "steps")[C.NAME].tolist() == ["ProfilerStep#1", "ProfilerStep#2"]
    host = table(collected, "host_intervals")
    inside = host[host[C.STEP].notna()]
    assert set(inside[C.PHASE].dropna()) >= {"forward", "backward", "optimizer", "zero_grad", "dataload"}
    convolutions = host[host[C.NAME] == "aten::convolution"]
    assert json.loads(convolutions[C.INPUT_SHAPES].iloc[0])[0] == [4, 1, 28, 28]
    assert collected.rows("allocations") > 0
    assert collected.rows("device_intervals") == 0


def test_the_peak_of_the_host_is_a_counter(collected: Run) -> None:
    rows = table(collected, "counters")
    (row,) = rows[rows[C.METRIC] == "host_peak_bytes"].to_dict("records")
    assert (row[C.SOURCE], row[C.UNIT]) == ("process", "bytes")
    assert 50e6 < row[C.VALUE] < 50e9


def test_the_process_is_sampled_until_the_last_step_has_ended(collected: Run) -> None:
    rows = table(collected, "counters")
    resident, steps = rows[rows[C.METRIC] == "rss_bytes"], table(collected, "steps")
    assert resident[C.VALUE].between(50e6, 50e9).all()
    assert resident[C.T_NS].max() >= int((steps[C.START_NS] + steps[C.DUR_NS]).max())
    scopes = [*analyze(collected, "utilization").tables["host"]["scope"]]
    assert scopes[-1] == "whole run"
    assert scopes[:-1] in ([], ["steps"])  # a sample in the short steps is a matter of luck


def test_its_breakdown_is_of_the_host_and_never_idle(collected: Run) -> None:
    result = analyze(collected, "gpu_breakdown")
    assert list(result.tables) == ["host"]
    assert result.tables["host"]["self_ns"].sum() > 0
    assert "no device" in result.notes[0]


def test_the_kept_trace_is_torch_s_own(collected: Run) -> None:
    kept = json.loads(gzip.decompress((collected.path / KEPT_TRACE).read_bytes()))
    assert any(event.get("name") == "aten::convolution" for event in kept["traceEvents"])
    assert str(collected.path.parent) not in json.dumps(kept)


def test_resnet50_at_a_small_size(store: Store) -> None:
    request = Request(**{**SMALL, "workload": "resnet50", "resolution": 32, "steps": 1}, mode="infer")
    names = set(table(collect(store, request), "host_intervals")[C.NAME])
    assert names >= {"aten::convolution", "aten::batch_norm", "aten::max_pool2d", "aten::linear"}


def test_the_commit_is_recorded(store: Store, git: Callable[..., str]) -> None:
    meta = collect(store, Request(**{**SMALL, "steps": 1}, mode="infer")).meta
    assert meta.git is not None
    assert (meta.git.sha, meta.git.branch, meta.git.dirty) == (git("rev-parse", "HEAD"), "main", False)


def test_stacks_are_recorded_when_asked_for(store: Store) -> None:
    host = table(collect(store, Request(**SMALL, stacks=True)), "host_intervals")
    assert "python" in set(host[C.KIND])
    assert host[C.MODULE].str.startswith("nn.Module: ").any()


def test_the_command_prints_ids_and_where_the_time_went(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--batch-size",
        "2",
        "--steps",
        "1",
        "--warmup",
        "0",
        "--threads",
        "1",
        "--store",
        str(store.path),
    ]
    assert tracekit(["collect", "--workload", "mnist_cnn", "--pin-memory", "--repeat", "2", *words]) == 0
    out, err = capsys.readouterr()
    ids = [run.id for run in store.runs()]
    assert out.splitlines()[:2] == ids
    assert "without the profiler" in out
    assert "Host time by op" in out
    assert "profile" in err
    assert {d.code for d in store.runs()[0].meta.diagnostics} >= {"pin_memory_ignored"}
    assert tracekit(["collect", "--workload", "mnist_cnn", "--format", "json", *words]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": "tracekit.collect/1",
        "runs": [store.runs()[-1].id],
    }


def test_too_much_memory_says_what_to_lower(store: Store) -> None:
    with pytest.raises(CollectionError, match="ran out of memory") as caught:
        collect(store, Request(**{**SMALL, "batch_size": 10**12}))
    assert "--batch-size" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"workload": "nothing"}, PluginError),
        ({"level": "warp"}, UnusableInputError),
        ({"steps": 0}, UnusableInputError),
        ({"device": "tpu"}, UnusableInputError),
    ],
)
def test_what_cannot_be_collected_leaves_nothing(
    change: dict[str, object], error: type[Exception], store: Store
) -> None:
    with pytest.raises(error):
        collect(store, Request(**{**SMALL, **change}))  # type: ignore[arg-type]
    assert [name for name in left_in(store) if name != ".gitignore"] == []


def start(store: Store) -> subprocess.Popen[bytes]:
    words = ["collect", "--workload", "mnist_cnn", "--steps", "100000", "--threads", "1"]
    code = "from tracekit.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words, "--store", str(store.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def measured_process(collecting: subprocess.Popen[bytes]) -> psutil.Process:
    """The child, once it steps."""
    assert collecting.stderr
    for line in collecting.stderr:
        if line.startswith(b"measure"):
            (child,) = psutil.Process(collecting.pid).children()
            return child
    raise AssertionError("it ended early")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_collector_ends_the_workload(ending: signal.Signals, store: Store) -> None:
    collecting = start(store)
    child = measured_process(collecting)
    collecting.send_signal(ending)
    collecting.communicate(timeout=60)
    give_up = time.monotonic() + 60
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    with store.draft():
        pass  # sweeps what a killed process could not
    assert left_in(store) == [".gitignore"]


def test_without_torch_it_says_what_to_install(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tracekit.collectors.torch_profiler", None)
    with pytest.raises((MissingDependencyError, PluginError)):
        collect(store, Request(**SMALL))
