"""Sweeps page: points are measured values, repeats are summarized, settings are not mixed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.app import create_app
from tracekit.dashboards.blocks import compute_block
from tracekit.dashboards.figures import sweep
from tracekit.dashboards.pages.sweeps import points
from tracekit.dashboards.pages.sweeps.points import (
    ACTIVE,
    Point,
    find_varying,
    read_points,
    read_quantity,
    read_sweep_view,
    summarize_repeats,
)
from tracekit.dashboards.site import Site, View

from samples.simulator import write
from samples.simulator.examples import training
from tests.runs import make_run
from tracekit import analyze
from tracekit.experiments import sweep as sweep_module
from tracekit.ingest.importer import import_traces
from tracekit.runs.meta import Git, Timings
from tracekit.runs.metrics import OF_RUNS, of_run
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


def swept(store: Store, at: int, *step_ns: int, sha: str = "a" * 40, **settings: Any) -> Run:
    fingerprint = {"workload": "w", "mode": "train", "batch_size": 8, **settings}
    peak = {C.T_NS: 0, C.SOURCE: "process", C.METRIC: "host_peak_bytes", C.UNIT: "bytes", C.VALUE: 1e9 + at}
    return make_run(
        store,
        after_s=at,
        fingerprint=fingerprint,
        timings=Timings(list(step_ns), [], "perf_counter"),
        git=Git(sha, "", "main", dirty=False, diff_sha256=None, commit_time="2026-11-21T00:00:00Z"),
        tables={"counters": [peak]},
    )


def never(run: Run, name: str) -> Any:
    raise AssertionError(f"{name} of {run.id} was asked for")


def shown(store: Store, **options: str) -> str:
    site = Site(app=create_app(store), store=store, pages=load_pages())
    reported = compute_block(site, View(page="sweeps", options=options), "sweep", dark=False)
    text = json.dumps(reported, default=lambda one: one.to_plotly_json())
    assert '"picture": ""' not in text  # every chart is also drawn without scripts
    return text


def test_values_are_those_of_the_metrics(store: Store) -> None:
    run = swept(store, 0, 100, 300, 200)
    (point,) = read_points([run])
    assert {name: read_quantity(point, name, never) for name in OF_RUNS if name in of_run(run)} == of_run(run)
    assert read_quantity(point, "sample_time", never) == 25.0
    assert read_quantity(point, "throughput", never) == pytest.approx(4e7)


def test_a_run_without_a_device_has_no_active_share_and_is_not_analysed(store: Store) -> None:
    (point,) = read_points([swept(store, 0, 100)])
    assert read_quantity(point, ACTIVE, never) is None


def test_repeats_are_summed_up_by_their_median_and_ends(store: Store) -> None:
    runs = [swept(store, at, length) for at, length in enumerate((300, 100, 200))]
    (one,) = summarize_repeats(read_points(runs), "batch_size", "step_time", never)
    assert (one.x, one.median, one.minimum, one.maximum, one.typical) == (8, 200.0, 100, 300, runs[2])


def test_settings_in_which_runs_differ_are_in_order(store: Store) -> None:
    runs = [swept(store, at, 100, batch_size=size) for at, size in enumerate((16, 8, 128))]
    assert find_varying(read_points(runs)) == {"batch_size": [8, 16, 128]}


def test_the_commit_at_which_most_was_tried_is_held(store: Store) -> None:
    runs = [swept(store, at, 100, batch_size=8 * at) for at in range(1, 4)]
    runs.append(swept(store, 9, 100, sha="b" * 40, batch_size=8))
    one = read_sweep_view(View(page="sweeps"), runs)
    assert one is not None
    assert one.fixed == {"commit": "a" * 12}
    every = read_sweep_view(View(page="sweeps", options={"commit": "all"}), runs)
    assert every is not None
    assert every.free == ["commit"]


def test_a_heatmap_holds_all_but_its_two_settings(store: Store) -> None:
    modes, sizes, levels = ("train", "infer"), (8, 16), ("eager", "compile")
    cells = [(mode, size, level) for mode in modes for size in sizes for level in levels]
    runs = [
        swept(store, at, 100, mode=mode, batch_size=size, level=level)
        for at, (mode, size, level) in enumerate(cells)
    ]
    one = read_sweep_view(View(page="sweeps", options={"form": "heatmap", "rows": "level"}), runs)
    assert one is not None
    assert (one.x, one.rows, one.fixed) == ("batch_size", "level", {"mode": "infer"})
    assert "Heatmap" not in shown(store)
    assert '"type": "heatmap"' in shown(store, form="heatmap", rows="level")


def test_a_store_without_a_sweep_says_what_to_run(store: Store) -> None:
    swept(store, 0, 100)
    assert "tracekit collect" in shown(store)


def test_a_metric_that_nothing_measured_is_said_to_be_absent(store: Store) -> None:
    for at, size in enumerate((8, 16)):
        swept(store, at, 100, batch_size=size)
    assert "has device peak" in shown(store, y="device_peak")


def test_points_carry_the_address_of_their_run(store: Store) -> None:
    runs = [swept(store, at, 100, batch_size=size) for at, size in enumerate((8, 16))]
    text = shown(store)
    for run in runs:
        assert f"/overview?run={run.path.name}" in text


def test_lines_double_from_tick_to_tick_and_escape_names(store: Store) -> None:
    run = swept(store, 0, 100)
    dots = [sweep.Spread(x, 1e6 * x, 1e6 * x, 2e6 * x, (run, run), run) for x in (8, 16)]
    figure = sweep.lines([("<b>x</b>", dots)], "ns", x="batch size", y="step time", href=repr)
    assert figure["layout"]["xaxis"]["type"] == "log"
    assert figure["layout"]["xaxis"]["ticktext"] == ["8", "16"]
    assert figure["data"][0]["y"] == [8.0, 16.0]
    assert figure["data"][0]["error_y"]["array"] == [8.0, 16.0]
    assert "<b>" not in figure["data"][0]["name"]


def test_words_make_an_axis_of_categories(store: Store) -> None:
    run = swept(store, 0, 100)
    dots = [sweep.Spread("eager", 1, 1, 1, (run,), run)]
    figure = sweep.lines([("", dots)], "ns", x="level", y="time", href=repr)
    assert figure["layout"]["xaxis"]["type"] == "category"


def test_the_active_share_is_the_one_of_the_sweep_table(store: Store, tmp_path: Path) -> None:
    (run,) = import_traces(store, [write(training(), tmp_path / "t.json")])
    kept = sweep_module.of_run(run)
    assert kept.active_ns
    assert kept.window_ns
    assert read_quantity(Point(run, "w", {}), ACTIVE, analyze) == kept.active_ns / kept.window_ns


def test_settings_name_what_does_not_name_itself() -> None:
    assert points.describe_setting("batch_size", "8") == "batch size 8"
    assert points.describe_setting("mode", "train") == "train"
