"""The report of a suite: known rows give known numbers, and no cell is empty without a reason."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.experiments.sweep.made import bad, ok
from tracekit import registry
from tracekit.analysis import Column
from tracekit.errors import PluginError, UnusableInputError
from tracekit.experiments import sweep_folder
from tracekit.experiments.suite import figures, plan, report
from tracekit.experiments.suite_plan import (
    CHARACTERIZATION,
    CURVES,
    FEW,
    THREADS,
    UNMEASURED,
    ZERO_GRAD,
    geomean,
    with_reasons,
)
from tracekit.experiments.sweep_model import Outcome
from tracekit.render import suite as suite_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.experiments.suite import Report
    from tracekit.experiments.sweep_model import Cell, Plan, Record
    from tracekit.runs.store import Store

GPU = {"device": "cuda", "gpu": "G", "allocated_peak_bytes": 1 << 30, "window_ns": 1000}


def reported(store: Store, wanted: Plan, became: Callable[[Cell], Record | None]) -> Report:
    place = sweep_folder.begin(store, wanted)
    for cell in wanted.cells:
        record = became(cell)
        if record is not None:
            place.add(record)
    return report(place)


def on_cpu(cell: Cell) -> Record:
    steps = {"zero": 400, "foreach": 200}.get(cell.settings.zero_grad, 100)
    return ok(cell, steps * cell.settings.batch_size, host_peak_bytes=4 << 20)


def on_gpu(cell: Cell) -> Record:
    active = 600 if cell.settings.mode == "train" else 200
    rest = {"active_ns": active, "movement_ns": 100, "idle_ns": 900 - active}
    return ok(cell, 100, host_peak_bytes=1 << 20, **GPU, **rest)


def by(rows: Any, **wanted: Any) -> dict[str, Any]:
    fitting = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    assert len(fitting) == 1
    found: dict[str, Any] = fitting[0]
    return found


def test_every_workload_and_mode_is_in_the_plan() -> None:
    wanted = plan(size="test")
    own = [cell.settings for cell in wanted.cells if cell.part == CHARACTERIZATION]
    expected = {
        (name, mode)
        for name in registry.names(registry.WORKLOADS)
        for mode in registry.load(registry.WORKLOADS, name).modes
    }
    assert {(one.workload, one.mode) for one in own} == expected
    zeroed = {cell.settings.workload for cell in wanted.cells if cell.part == ZERO_GRAD}
    assert len(zeroed) == len({registry.load(registry.WORKLOADS, one.workload).domain for one in own})
    assert {cell.part for cell in wanted.cells} >= {CHARACTERIZATION, ZERO_GRAD, CURVES, THREADS}


def test_cells_are_at_the_sizes_of_the_suite() -> None:
    for cell in plan(size="gpu", only=["resnet50"]).cells:
        if cell.part == CHARACTERIZATION:
            sizes = registry.load(registry.WORKLOADS, "resnet50").sizes["gpu"]
            assert cell.settings.batch_size == sizes["batch_size"]
    sides = {c.settings.resolution for c in plan(size="gpu", only=["resnet50"]).cells if c.part == CURVES}
    assert max(sides) == 1024


def test_a_part_of_the_workloads_can_be_asked_for() -> None:
    assert {cell.settings.workload for cell in plan(domains=["rl"]).cells} == {"sac"}
    with pytest.raises(UnusableInputError, match="no workload matches"):
        plan(only=["sac"], domains=["vision"])
    with pytest.raises(PluginError):
        plan(only=["nothing"])


def test_shares_of_a_domain_are_means_beside_the_published(store: Store) -> None:
    wanted = plan(only=["resnet50", "mnist_cnn"])

    def became(cell: Cell) -> Record:
        if cell.settings.workload == "mnist_cnn" and cell.part == CHARACTERIZATION:
            return ok(cell, 100, **GPU, active_ns=200, movement_ns=0, idle_ns=800)
        return on_gpu(cell)

    row = by(reported(store, wanted, became).tables["domains"].rows, domain="vision", mode="train")
    assert row["active_share"] == pytest.approx(0.4)
    assert row["idle_share"] == pytest.approx(0.55)
    assert (row["published_active"], row["published_movement"], row["published_idle"]) == (
        0.531,
        0.021,
        0.448,
    )
    assert row["workloads"] == 2


def test_a_mended_workload_is_no_second_of_its_domain(store: Store) -> None:
    found = reported(store, plan(only=["reformer", "reformer_fixed"]), on_gpu)
    assert by(found.tables["domains"].rows, domain="language", mode="train")["workloads"] == 1
    mended = [row for row in found.tables["speedups"].rows if row["change"].startswith("scalar")]
    assert {row["workload"] for row in mended} == {"reformer", "geomean"}
    assert all(row["published_speedup"] == 27.0 for row in mended)


def test_speedups_are_before_over_after_with_a_geometric_mean(store: Store) -> None:
    rows = reported(store, plan(only=["resnet50", "sac"]), on_cpu).tables["speedups"].rows
    foreach = [row for row in rows if row["change"] == "zero_grad: zero to foreach"]
    assert [(row["workload"], row["speedup"]) for row in foreach] == [
        ("resnet50", 2.0),
        ("sac", 2.0),
        ("geomean", pytest.approx(2.0)),
    ]
    dropped = by(rows, change="zero_grad: zero to default", workload="sac")
    assert dropped["speedup"] == 4.0


@pytest.mark.parametrize(
    ("runs", "of_zero", "apart"),
    [(3, 400, None), (4, 400, True), (4, 101, False)],
    ids=["few runs lie apart by chance", "apart", "overlap"],
)
def test_a_change_is_told_from_noise_by_its_runs(
    store: Store, runs: int, of_zero: int, *, apart: bool | None
) -> None:
    wanted = plan(only=["sac"], repeats=runs)
    place = sweep_folder.begin(store, wanted)
    for cell in wanted.cells:
        base = of_zero if cell.settings.zero_grad == "zero" else 100
        for repeat in range(runs):
            place.add(ok(cell, base + repeat, repeat=repeat))
    row = by(report(place).tables["speedups"].rows, change="zero_grad: zero to default", workload="sac")
    assert row["apart"] is apart
    assert ("--repeat 4" in row["reasons"].get("apart", "")) == (apart is None)


def test_columns_without_a_value_are_left_out_and_told_with_their_reason(store: Store) -> None:
    table = reported(store, plan(only=["resnet50"]), on_cpu).tables["compiled"]
    names = [column.name for column in table.filled]
    assert "eager_ns" in names
    assert "speedup" not in names
    text = " ".join(suite_report.absent(table))
    assert "host ratio, device ratio" in text
    assert UNMEASURED in text
    assert "ratios" not in text.replace("host ratio", "")


def test_figures_that_are_missing_alike_are_one_line(store: Store) -> None:
    found = reported(store, plan(only=["sac"]), on_cpu)
    own = [one for one in figures(found) if one.table == "curves"]
    assert suite_report.undrawn(own) == ["8 figures omitted: not in the suite."]
    assert f"ResNet-50 over resolution and batch size\n{suite_report.NO_ROWS}" in suite_report.render(
        found, "table"
    )


def test_eager_stands_beside_compiled(store: Store) -> None:
    wanted = plan(size="gpu", only=["resnet50", "sac"])

    def became(cell: Cell) -> Record:
        faster = {"resnet50": 2, "sac": 8}[cell.settings.workload]
        scale = faster if cell.settings.level == "compile" else 1
        counted = {} if scale == 1 else {"compile_ns": 5_000, "guards": 7, "graph_breaks": 0}
        return ok(cell, 800 // scale, host_peak_bytes=1 << 20 if scale == 1 else 1 << 18, **counted)

    rows = reported(store, wanted, became).tables["compiled"].rows
    one = by(rows, workload="sac", mode="infer")
    assert (one["speedup"], one["apart"], one["reasons"]["apart"]) == (8.0, None, FEW)
    assert (one["compile_ns"], one["guards"], one["graph_breaks"]) == (5_000, 7, 0)
    mean = by(rows, workload="geomean", mode="train")
    assert mean["speedup"] == pytest.approx(math.sqrt(16))
    assert mean["host_ratio"] == pytest.approx(0.25)
    assert (mean["published_speedup"], mean["published_host_ratio"]) == (1.30, 0.29)
    assert mean["reasons"]["device_ratio"] == "no GPU"


def test_at_size_test_what_is_not_compiled_says_why(store: Store) -> None:
    wanted = plan(only=["resnet50", "sac"])
    compiled = {cell.settings.workload for cell in wanted.cells if cell.settings.level == "compile"}
    assert compiled == {"sac"}
    rows = reported(store, wanted, on_cpu).tables["compiled"].rows
    assert by(rows, workload="resnet50", mode="train")["reasons"]["speedup"].startswith("skipped: ")
    assert by(rows, workload="sac", mode="train")["speedup"] == 1.0


def test_each_backend_and_level_has_its_rows_and_means(store: Store) -> None:
    levels = ("eager", "torchscript", "compile")
    wanted = plan(only=["mnist_cnn", "lennard_jones"], levels=levels, backends=("inductor", "aot_eager"))
    tables = reported(store, wanted, on_cpu).tables
    rows = tables["compiled"].rows
    ways = {row["level"] for row in rows}
    assert ways == {"torchscript", "compile", "compile (aot_eager)"}
    assert by(rows, workload="mnist_cnn", mode="infer", level="compile (aot_eager)")["speedup"] == 1.0
    lacking = by(rows, workload="lennard_jones", mode="infer", level="torchscript")
    assert lacking["reasons"]["speedup"] == "no level torchscript"
    traced = by(rows, workload="mnist_cnn", mode="infer", level="torchscript")
    assert traced["reasons"]["apart"] == FEW
    assert traced["reasons"]["guards"].startswith("available only for")
    mean = by(rows, workload="geomean", mode="infer", level="torchscript")
    assert (mean["speedup"], mean["published_speedup"]) == (1.0, None)
    assert {row["level"] for row in tables["memory"].rows} == {"eager", *ways}


def test_an_epoch_is_the_steps_of_all_its_samples(store: Store) -> None:
    rows = reported(store, plan(only=["mnist_cnn"]), on_cpu).tables["epochs"].rows
    one = by(rows, device="cpu", threads="1")
    batch = one["batch_size"]
    assert one["epoch_ns"] == 100 * batch * math.ceil(60_000 / batch)
    assert one["published_ns"] == 24_080_000_000
    gpu = by(rows, device="cuda", threads="all")
    assert (gpu["epoch_ns"], gpu["reasons"]["epoch_ns"]) == (None, "no GPU")


def half(cell: Cell) -> Record | None:
    """Of every four cells one went well, one ran out of memory, one failed, and one is to come."""
    at = int(cell.key, 16) % 4
    if at == 0:
        return on_cpu(cell)
    known = [Outcome.OUT_OF_MEMORY, Outcome.FAILED, None][at - 1]
    return bad(cell, known, "why not") if known else None


@pytest.mark.parametrize("became", [on_cpu, on_gpu, half, lambda _: None])
def test_no_cell_is_empty_without_a_reason(store: Store, became: Any) -> None:
    found = reported(store, plan(size="test"), became)
    for table in found.tables.values():
        assert table.rows
        for row in table.rows:
            missing = {column.name for column in table.columns if row[column.name] is None}
            assert missing == set(row["reasons"])
            assert all(row["reasons"].values())
        shown = [cell for row in table.values() for cell in (row[c.name] for c in table.columns)]
        assert None not in shown
    for figure in figures(found):
        assert (figure.content is None) == bool(figure.reason)


def test_without_a_gpu_device_columns_say_so(store: Store) -> None:
    found = reported(store, plan(only=["resnet50"]), on_cpu)
    for name in ("workloads", "domains", "memory", "curves"):
        reasons = {why for row in found.tables[name].rows for why in row["reasons"].values()}
        assert "no GPU" in reasons


@pytest.mark.parametrize("output_format", ["table", "markdown", "csv", "json"])
def test_every_format_has_every_table(store: Store, output_format: str) -> None:
    found = reported(store, plan(only=["resnet50", "mnist_cnn"]), on_cpu)
    text = suite_report.render(found, output_format)
    if output_format == "json":
        content = json.loads(text)
        assert set(content["tables"]) == set(found.tables)
        assert content["schema"] == "tracekit.suite/1"
    else:
        assert all(
            (one.name if output_format == "csv" else one.title) in text for one in found.tables.values()
        )
    assert "no GPU" in text


def test_each_table_of_markdown_ends_at_an_empty_line(store: Store) -> None:
    text = suite_report.render(reported(store, plan(only=["sac"]), on_cpu), "markdown")
    lines = text.splitlines()
    ends = [
        after for before, after in pairwise(lines) if before.startswith("| ") and not after.startswith("|")
    ]
    assert ends
    assert set(ends) == {""}


def test_the_page_carries_its_figures_and_asks_for_nothing_else(store: Store) -> None:
    pytest.importorskip("plotly")
    found = reported(store, plan(only=["resnet50", "mnist_cnn"]), on_gpu)
    text = suite_report.as_html(found)
    assert 'id="figure-domains"' in text
    assert 'id="figure-curves-sample-resolution"' in text
    assert '<script src="http' not in text
    assert all(one.title in text for one in found.tables.values())


def test_an_unfinished_suite_says_how_to_go_on(store: Store) -> None:
    found = reported(store, plan(only=["sac"]), lambda _: None)
    assert "not finished" in " ".join(suite_report.outcomes(found))


def test_the_page_of_a_part_of_the_workloads_says_what_is_not_in_it(store: Store) -> None:
    pytest.importorskip("plotly")
    text = suite_report.as_html(reported(store, plan(only=["sac"]), on_cpu))
    assert f"ResNet-50 over resolution and batch size</h2><p>{suite_report.NO_ROWS}" in text
    assert "8 figures omitted" not in text


def test_absent_values_have_a_reason() -> None:
    row = with_reasons({"a": 1}, [Column("a", "", ""), Column("b", "", "")], "no GPU")
    assert row == {"a": 1, "b": None, "reasons": {"b": "no GPU"}}
    assert geomean([1.0, 4.0, None]) == 2.0
