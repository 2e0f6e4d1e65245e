"""`tracekit suite`, for real, on the smallest of the workloads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tracekit.cli.main import run as tracekit

pytest.importorskip("torch")

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store


@pytest.mark.slow
def test_a_suite_is_measured_once_and_reported(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    place = ["--store", str(store.path)]
    compiled = ["--backend", "aot_eager"]  # Inductor takes its time
    run = ["suite", "run", "--size", "test", "--only", "lennard_jones", *compiled, *place]
    assert tracekit(run) == 0
    name = capsys.readouterr().out.strip()
    runs = [one.id for one in store.runs()]
    assert len(runs) == 6  # train and infer, eagerly and compiled, and two ways of clearing gradients
    assert tracekit(run) == 0
    assert capsys.readouterr().out.strip() == name
    assert [one.id for one in store.runs()] == runs

    assert tracekit(["suite", "report", name, "--format", "json", *place]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["outcomes"] == {"ok": 6}
    rows = {(row["workload"], row["mode"]): row for row in reported["tables"]["workloads"]["rows"]}
    train = rows["lennard_jones", "train"]
    assert train["step_ns"] > 0
    assert train["run_id"] in runs
    assert train["reasons"]["active_share"] == "no GPU"
    both = {
        row["mode"]: row for row in reported["tables"]["compiled"]["rows"] if row["workload"] != "geomean"
    }
    for mode, one in both.items():
        assert one["level"] == "compile (aot_eager)"
        assert one["speedup"] == pytest.approx(rows["lennard_jones", mode]["step_ns"] / one["compiled_ns"])
    foreach = reported["tables"]["speedups"]["rows"][0]
    assert foreach["speedup"] == pytest.approx(foreach["before_ns"] / foreach["after_ns"])

    page = tmp_path / "suite.html"
    assert tracekit(["suite", "report", "-o", str(page), *place]) == 0
    assert "Plotly.newPlot" in page.read_text()


def test_a_suite_of_nothing_is_refused(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["suite", "run", "--only", "sac", "--domain", "vision", "--store", str(store.path)]
    assert tracekit(words) == 2
    assert "no workload matches" in capsys.readouterr().err
    assert tracekit(["suite", "report", "--store", str(store.path)]) == 2
    assert "tracekit suite run" in capsys.readouterr().err
