"""Noise of the runs of a store: pooled within runs of the same code, and nothing else."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.runs import make_run
from tracekit.cli.main import run as command
from tracekit.diff.noise import history
from tracekit.runs.meta import Git, Timings
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

COLLECT = ["tracekit", "collect", "--workload", "resnet50"]
FINGERPRINT = {"workload": "resnet50", "mode": "train", "device": "cpu", "batch_size": 4, "gpu": None}


def git(sha: str, *, dirty: bool = False) -> Git:
    return Git(sha * 40, "t" * 40, "main", dirty, "d" * 64 if dirty else None, "2026-11-21T03:15:00Z")


def made(store: Store, second: int, step_ns: int, peak: float | None = None, **fields: Any) -> Run:
    sample = {C.T_NS: 0, C.SOURCE: "process", C.METRIC: "host_peak_bytes", C.UNIT: "bytes", C.VALUE: peak}
    defaults = {
        "git": git("a"),
        "fingerprint": FINGERPRINT,
        "command": COLLECT,
        "timings": Timings([step_ns, 7 * step_ns, step_ns], [], "perf_counter"),
        "tables": {"counters": [] if peak is None else [sample]},
    }
    return make_run(store, after_s=second, **defaults | fields)


def test_sigma_is_pooled_within_commits_so_that_changes_do_not_enter(store: Store) -> None:
    for second, (sha, step_ns) in enumerate([("a", 100), ("b", 200), ("a", 110), ("b", 220), ("c", 900)]):
        made(store, second, step_ns, git=git(sha))
    [series] = history(store.runs()).series
    expected = math.log(1.1) / math.sqrt(2)
    assert series.noise.sigma == pytest.approx(expected)
    assert (series.noise.df, series.noise.runs, series.noise.groups, series.values) == (2.0, 4, 2, 5)
    assert (series.configuration, series.metric) == ("resnet50 train cpu batch 4", "step_time")


@pytest.mark.parametrize("created", ["aten::mm", "2026-11-21T03:15:00", "0001-01-01T00:00:00+09:00"])
def test_a_time_of_creation_that_was_edited_does_no_harm(store: Store, created: str) -> None:
    made(store, 0, 100, created_at=created)
    made(store, 1, 110)
    [series] = history(store.runs()).series
    assert series.values == 2


def test_every_metric_and_configuration_is_a_series_of_its_own(store: Store) -> None:
    for second, (batch, peak) in enumerate([(4, 1e6), (8, 2e6), (4, 1e6), (8, 2e6)]):
        made(store, second, 100, peak, fingerprint=FINGERPRINT | {"batch_size": batch})
    found = history(store.runs()).series
    assert [(one.configuration[-7:], one.metric, one.noise.sigma) for one in found] == [
        (f"batch {batch}", metric, 0.0) for batch in (4, 8) for metric in ("step_time", "host_peak")
    ]
    assert len({one.id for one in found}) == 2


def test_changed_code_is_never_a_repeat_of_its_commit(store: Store) -> None:
    made(store, 0, 100)
    made(store, 1, 200, git=git("a", dirty=True))
    made(store, 2, 200, git=git("a", dirty=True), label="mine")
    made(store, 3, 200, git=None)
    found = history(store.runs())
    assert (found.without_code, found.unmeasured) == (2, 0)
    assert [(one.noise.groups, one.values) for one in found.series] == [(0, 2)]
    made(store, 4, 210, git=git("a", dirty=True), label="mine")
    assert history(store.runs()).series[0].noise.groups == 1


def test_the_order_of_runs_does_not_matter(store: Store) -> None:
    steps = np.random.default_rng(1).integers(90, 110, 12)
    for second, step_ns in enumerate(steps.tolist()):
        made(store, second, step_ns, git=git("ab"[second % 2]))
    runs = store.runs()
    assert history(runs) == history(runs[::-1])


def test_what_is_missing_is_said_with_the_command_that_gives_it(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    made(store, 0, 100)
    made(store, 1, 100, git=None)
    make_run(store, after_s=2)
    assert command(["noise", "--store", str(store.path), "--format", "json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    [row] = found["series"]
    assert found["schema"] == "tracekit.noise/1"
    assert (row["sigma"], row["detectable_5"], row["repeats"]) == (None, None, 0)
    assert row["needs"] == (
        "needs two or more runs of the same commit: tracekit collect --workload resnet50 --repeat 5"
    )
    assert "1 run is skipped: without a clean commit" in captured.err
    assert "1 run is skipped: only `tracekit collect` records unprofiled" in captured.err


def test_an_empty_store_says_what_to_do(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["noise", "--store", str(store.path)]) == 0
    captured = capsys.readouterr()
    assert (captured.out, "--repeat 5" in captured.err) == ("", True)


@pytest.mark.parametrize("output_format", ["table", "csv", "markdown"])
def test_what_can_be_detected_is_shown(
    output_format: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    for second, step_ns in enumerate([100_000, 101_000, 99_000, 100_500, 99_500]):
        made(store, second, step_ns)
    [series] = history(store.runs()).series
    assert series.needs == ""
    assert command(["noise", "--store", str(store.path), "--format", output_format]) == 0
    change = series.noise.mde(5, paired=True)  # as runs of `tracekit ab` alternate
    assert (repr(change) if output_format == "csv" else f"{100 * change:.1f}%") in capsys.readouterr().out


def test_runs_in_any_order_say_the_same(store: Store) -> None:
    for second, seed in enumerate(["0", "1", "2"]):
        made(store, second, 100 + second, command=[*COLLECT, "--seed", seed])
    assert history(store.runs()) == history(store.runs()[::-1])


def test_runs_from_before_the_cores_were_recorded_are_repeats(store: Store) -> None:
    made(store, 0, 100)
    made(store, 1, 110, fingerprint=FINGERPRINT | {"cpu_cores": 2})
    [series] = history(store.runs()).series
    assert (series.noise.runs, series.sessions) == (2, 1)


def test_sessions_differ_by_more_than_their_runs(store: Store) -> None:
    for day, level in enumerate([1000, 1100, 1050, 980]):
        for second in range(3):
            made(store, 86_400 * day + second, level + second)
    [series] = history(store.runs()).series
    assert (series.sessions, series.steps) == (4, 0)
    assert series.between.sigma == pytest.approx(np.std(np.log([1001, 1101, 1051, 981]), ddof=1))
