"""What the measurements of a cell come to, as rows, as Parquet and as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.unit.experiments.sweep.made import bad, cell, done, ok, plan
from tracekit.experiments import sweep_folder, sweep_table
from tracekit.experiments.sweep_model import Outcome
from tracekit.experiments.sweep_table import rows
from tracekit.render import sweep as sweep_report

if TYPE_CHECKING:
    from tracekit.runs.store import Store

ONE, TWO = cell(batch_size=4), cell(batch_size=8)


def test_a_row_sums_up_its_runs() -> None:
    known = done(
        ok(ONE, 100, 300, 200, host_peak_bytes=10),
        ok(ONE, 400, 600, 500, repeat=1, host_peak_bytes=30),
        ok(ONE, 900, 700, 800, repeat=2, host_peak_bytes=20),
    )
    (row,) = rows(plan(ONE, repeats=3), known)
    assert (row.step_ns, row.step_least_ns, row.step_most_ns, row.n) == (500, 100, 900, 3)
    assert row.samples_per_second == 4 * 1e9 / 500
    assert row.host_peak_bytes == 30
    assert row.run_id == f"{ONE.key}-1"
    assert row.device_reason == "no GPU"
    assert row.outcome == "ok"


def test_shares_of_the_device_are_pooled_over_runs() -> None:
    gpu = {"device": "cuda", "gpu": "G"}
    known = done(
        ok(ONE, 1, window_ns=100, active_ns=50, movement_ns=10, idle_ns=40, **gpu),
        ok(ONE, 1, repeat=1, window_ns=300, active_ns=250, movement_ns=0, idle_ns=50, **gpu),
    )
    (row,) = rows(plan(ONE, repeats=2), known)
    assert (row.active_share, row.movement_share, row.idle_share) == (0.75, 0.025, 0.225)
    assert row.device_reason == ""


def test_what_failed_later_leaves_the_values_and_says_so() -> None:
    known = done(ok(ONE, 100), bad(ONE, Outcome.FAILED, "it fell", repeat=1))
    (row,) = rows(plan(ONE, repeats=2), known)
    assert (row.outcome, row.n, row.step_ns) == ("ok", 1, 100)
    assert "1 of 2" in row.reason
    assert "it fell" in row.reason


def test_every_row_without_values_has_a_reason() -> None:
    known = done(bad(ONE, Outcome.OUT_OF_MEMORY, "too large"))
    found = rows(plan(ONE, TWO), known)
    assert [(row.outcome, row.reason) for row in found] == [
        ("out of memory", "too large"),
        ("pending", sweep_table.PENDING),
    ]


def test_the_parquet_file_holds_the_rows(store: Store) -> None:
    place = sweep_folder.begin(store, plan(ONE, TWO))
    known = done(ok(ONE, 2**53 + 1), bad(TWO, Outcome.FAILED))
    sweep_table.write(place, known)
    kept = pq.read_table(place.table).to_pylist()
    assert kept[0]["step_ns"] == 2**53 + 1
    assert kept[0]["run_ids"] == [f"{ONE.key}-0"]
    assert kept[0]["run_step_ns"] == [2**53 + 1]
    assert (kept[1]["outcome"], kept[1]["reason"], kept[1]["step_ns"]) == ("failed", "why", None)
    assert set(kept[0]) == {column.name for column in sweep_table.COLUMNS} | {"run_ids", "run_step_ns"}


@pytest.mark.parametrize("output_format", ["table", "markdown", "csv", "json"])
def test_every_format_tells_the_reason(output_format: str) -> None:
    found = rows(plan(ONE, TWO), done(ok(ONE, 1_500_000), bad(TWO, Outcome.FAILED, "it fell")))
    text = sweep_report.render("w-1", plan(ONE, TWO), found, output_format)
    assert "it fell" in text
    if output_format == "json":
        assert [row["batch_size"] for row in json.loads(text)["rows"]] == [4, 8]
    if output_format == "table":
        assert "1.50 ms" in text


def test_settings_that_do_not_differ_are_said_once() -> None:
    found = rows(plan(ONE, TWO), done(ok(ONE, 1), ok(TWO, 1)))
    shown = [column.name for column in sweep_report.shown_columns(found)]
    assert "batch_size" in shown
    assert "mode" not in shown
    assert sweep_report.describe_shared_settings(found) == "w, train, eager, float32"
