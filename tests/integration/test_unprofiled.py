"""A run without a profile, for real: step times and samples, and analyses that say why they are silent."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.collectors import workload_process

from tests.tiers import thinned
from tracekit.analysis import NOT_PROFILED, analyze, available
from tracekit.cli.main import run as tracekit
from tracekit.errors import UnusableInputError
from tracekit.experiments.sweep_folder import find
from tracekit.experiments.sweep_table import rows
from tracekit.recording.collect import collect, command
from tracekit.recording.collector import Request
from tracekit.runs.store import Store
from tracekit.schema import C

pytest.importorskip("torch")

if TYPE_CHECKING:
    from tracekit.runs.run import Run

SMALL = Request(
    workload="lennard_jones", batch_size=4, steps=3, warmup=1, threads=1, device="cpu", no_profile=True
)
PLAYED = Path(__file__).with_name("workload_played.py")
SPEAKS = {"integrity", "steps", "utilization"}
"""What a run without a profile still has something for."""


@pytest.fixture(scope="module", params=thinned(["played", "real"], default=["played"]))
def timed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of a process that plays the workload, or of one that runs it with torch."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "played":
            patch.setattr(workload_process, "COMMAND", (sys.executable, str(PLAYED), "ends well"))
        return collect(Store(tmp_path_factory.mktemp("timed") / "store"), SMALL)


def test_it_has_times_and_samples_and_no_intervals(timed: Run) -> None:
    assert set(timed.meta.tables) == {"counters"}
    assert timed.meta.timings is not None
    assert len(timed.meta.timings.step_ns) == 3
    counters = timed.table("counters")
    assert "host_peak_bytes" in set(counters[C.METRIC])
    assert counters[C.T_NS].min() == 0


def test_it_is_marked(timed: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert not timed.meta.profiled
    assert [one.code for one in timed.meta.diagnostics] == ["not_profiled"]
    assert "--no-profile" in timed.meta.command
    tracekit(["runs", "--store", str(timed.path.parent), "--format", "csv"])
    assert "torch, no profile" in capsys.readouterr().out


def test_each_analysis_says_why_it_has_nothing(timed: Run) -> None:
    silent = {one.name for one in available()} - SPEAKS
    assert silent
    for name in silent:
        result = analyze(timed, name)
        assert (result.tables, result.findings, result.notes) == ({}, (), (NOT_PROFILED,))


def test_its_steps_are_those_that_were_timed(timed: Run) -> None:
    (row,) = analyze(timed, "steps").tables["summary"].to_dict("records")
    assert timed.meta.timings is not None
    times = sorted(timed.meta.timings.step_ns)
    assert (row["steps"], row["min_ns"], row["median_ns"], row["max_ns"]) == (3, *times)


def test_no_advice_is_no_praise(timed: Run, capsys: pytest.CaptureFixture[str]) -> None:
    tracekit(["findings", str(timed.path)])
    reported = capsys.readouterr().out
    assert "No intervals recorded. 0 findings" in reported
    assert "0 ns" not in reported


def test_its_integrity_is_not_judged_by_what_was_not_recorded(timed: Run) -> None:
    checks = analyze(timed, "integrity").tables["checks"]["check"].to_list()
    assert [check for check in checks if check != "cpu_contention"] == ["not_profiled"]  # others may run here


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"collector": "nsys"}, "--collector nsys cannot be combined with --no-profile"),
        ({"keep_trace": True}, "--keep-trace cannot be combined"),
    ],
)
def test_what_needs_a_profile_is_refused_before_anything_runs(
    options: dict[str, Any], said: str, store: Store
) -> None:
    with pytest.raises(UnusableInputError, match=said):
        collect(store, replace(SMALL, **options))
    assert not store.path.exists()


def test_call_stacks_of_no_profile_are_refused(store: Store) -> None:
    words = ["collect", "--workload", "mnist_cnn", "--no-profile", "--stacks", "--store", str(store.path)]
    assert tracekit(words) == 2


def test_its_command_repeats_it() -> None:
    assert "--no-profile" in command(SMALL)


@pytest.mark.slow
def test_a_sweep_times_without_profiling_and_is_another_than_the_one_that_does(store: Store) -> None:
    words = ["sweep", "--workload", "lennard_jones", "--batch-size", "4", "--steps", "2", "--warmup", "0"]
    where = ["--threads", "1", "--device", "cpu", "--store", str(store.path)]
    assert tracekit([*words, "--no-profile", *where]) == 0
    folder = find(store, "latest")
    assert not folder.plan.profile
    (row,) = rows(folder.plan, folder.records())
    assert row.step_ns
    assert row.host_peak_bytes
    assert not store.resolve(str(row.run_id)).meta.profiled
