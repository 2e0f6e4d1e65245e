"""Levels, for real: what a measured process compiles is in the run, its analysis, exports and sweeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.collectors.compilation import MIN_WARMUP

from tracekit import analyze, compare
from tracekit.cli.main import run as tracekit
from tracekit.recording.collect import collect
from tracekit.recording.collector import Request
from tracekit.runs.compilation import read
from tracekit.runs.store import Store
from tracekit.schema import C

pytest.importorskip("torch")

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

pytestmark = pytest.mark.slow  # `test_collect.py` plays a compiled workload in the default tier
SMALL: dict[str, Any] = {"size": "test", "steps": 2, "warmup": 0, "threads": 1, "device": "cpu"}
BROKEN: dict[str, Any] = SMALL | {"workload": "lennard_jones", "mode": "train"}
"""Its training breaks a graph: a tensor with `requires_grad` leaves it."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("levels") / "store")


@pytest.fixture(scope="module")
def eager(store: Store) -> Run:
    return collect(store, Request(**BROKEN, label="eager"))


@pytest.fixture(scope="module")
def compiled(store: Store) -> Run:
    return collect(store, Request(**BROKEN, level="compile", backend="aot_eager", label="compiled"))


def names(run: Run) -> set[str]:
    return set(run.table("host_intervals", columns=[C.NAME])[C.NAME])


def test_a_run_keeps_what_was_compiled_and_timed_steps_compile_nothing(compiled: Run) -> None:
    meta, found = compiled.meta, read(compiled.meta)
    assert meta.workload is not None
    assert (meta.workload["level"], meta.workload["backend"]) == ("compile", "aot_eager")
    assert meta.fingerprint["backend"] == "aot_eager"
    assert "--backend aot_eager" in " ".join(meta.command)
    assert found is not None
    assert meta.timings is not None
    assert len(meta.timings.warmup_ns) >= MIN_WARMUP
    assert found.first_call_ns == meta.timings.warmup_ns[0]
    assert 0 < found.compile_ns < found.first_call_ns  # all of it is within that call
    assert found.graphs == 2
    assert [one.reason for one in found.breaks] == ["requires_grad_() intermediate leaked as output"]
    assert found.late == ()
    assert [one.code for one in meta.diagnostics if one.code.startswith("compiled_in")] == []
    assert any(name.startswith("Torch-Compiled Region") for name in names(compiled))


def test_the_analysis_tells_what_was_counted(compiled: Run) -> None:
    result = analyze(compiled, "compile")
    (row,) = result.tables["compilation"].to_dict("records")
    assert (row["backend"], row["backend_graphs"], row["graph_breaks"], row["late"]) == ("aot_eager", 2, 1, 0)
    assert row["guards"] > 0
    assert list(result.tables["compilations"]["id"]) == ["0/0", "1/0", "1/0"]
    assert "compile_graph_breaks" in {one.code for one in result.findings}


def test_an_eager_run_has_nothing_of_it(eager: Run) -> None:
    assert read(eager.meta) is None
    assert eager.meta.fingerprint["backend"] is None
    assert "compilation" not in analyze(eager, "compile").tables


def test_eager_and_compiled_can_be_compared(eager: Run, compiled: Run) -> None:
    result = compare(eager, compiled, "compile")
    rows = {row["quantity"]: row for row in result.tables["ratios"].to_dict("records")}
    assert rows["compiled regions, per step"]["head"] >= 2
    assert compiled.meta.timings is not None
    assert rows["first warm-up step"]["head"] == compiled.meta.timings.warmup_ns[0]


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
def test_exports_hold_it(compiled: Run, store: Store, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["analyze", compiled.id, "compile", "--format", form, "--store", str(store.path)]
    assert tracekit(words) == 0
    reported = capsys.readouterr().out
    assert "intermediate leaked as output" in reported
    if form == "json":
        tables = json.loads(reported)["results"]["compile"]["tables"]
        assert tables["compilation"][0]["compile_ns"] == sum(row["dur_ns"] for row in tables["compilations"])


def test_a_trace_runs_without_its_modules(store: Store) -> None:
    run = collect(store, Request(workload="mnist_cnn", level="torchscript", **SMALL))
    assert run.meta.timings is not None
    assert len(run.meta.timings.warmup_ns) == MIN_WARMUP
    assert "<forward op>" in names(run)  # what TorchScript differentiates at once
    assert read(run.meta) is None


def test_without_a_compiler_the_error_names_a_backend_that_needs_none(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["collect", "--workload", "lennard_jones", "--size", "test", "--level", "compile"]
    assert tracekit([*words, "--device", "cpu", "--store", str(store.path)]) == 2
    reported = capsys.readouterr().err
    assert "needs a C++ compiler" in reported
    assert "--backend aot_eager" in reported


def test_a_sweep_compiles_where_it_is_told_to(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "--workload", "mnist_cnn", "--mode", "infer", "--batch-size", "2", "--steps", "1"]
    words += ["--level", "eager,compile", "--backend", "eager", "--threads", "1", "--device", "cpu"]
    assert tracekit([*words, "--format", "json", "--store", str(store.path)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["level"], row["backend"], row["outcome"]) for row in rows] == [
        ("eager", None, "ok"),
        ("compile", "eager", "ok"),
    ]
    assert [row["graph_breaks"] for row in rows] == [None, 0]
    assert rows[1]["compile_ns"] > 0
    assert rows[1]["guards"] > 0
