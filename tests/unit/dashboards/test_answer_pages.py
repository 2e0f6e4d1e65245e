"""Every block of the answer pages, on full, sparse and empty runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from plotly.utils import PlotlyJSONEncoder
from tracekit.analyses.compile.kernels import LINES
from tracekit.dashboards.analysis_pages.pages import load_pages, result_blocks
from tracekit.dashboards.analysis_pages.results import PageResults, Row
from tracekit.dashboards.pages import compile as compile_page
from tracekit.dashboards.pages import roofline
from tracekit.dashboards.site import Context, Results, View

from tests.builders import host, kernel, make_run, memcpy, step
from tests.unit.analyses.test_sync_points import read_back
from tracekit import analysis
from tracekit.analysis import Result, analyze
from tracekit.render import human
from tracekit.runs.store import Store
from tracekit.schema import C, CopyKind, HostKind, Memory

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

BLOCKS = {"answer", "figures", "tables"}
PAGES = [name for name, page in load_pages().items() if set(page.blocks) >= BLOCKS and name != "integrity"]
"""Pages of answers; that of the integrity has checks of every run, also of an empty one."""
HOSTILE = "<script>x</script><b>" + "y" * 5_000
each = pytest.mark.parametrize("name", PAGES)


def _context(run: Run, page: str, **view: Any) -> Context:
    store = Store(run.path.parent)
    selected = View(page=page, run=run.path.name, **view)
    return Context(view=selected, dark=False, store=store, results=Results(), chosen=run)


def _shown(run: Run, name: str, **view: Any) -> dict[str, str]:
    """Each block of a page as it is sent."""
    context = _context(run, name, **view)
    blocks = load_pages()[name].blocks
    return {
        block: json.dumps(make(context), cls=PlotlyJSONEncoder, ensure_ascii=False)
        for block, make in blocks.items()
    }


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two ranks whose every name is hostile, with copies, communication and allocations."""
    hosts, devices = [], []
    for rank in (0, 1):
        at = 100 * rank
        hosts += [
            host(HOSTILE, at, at + 90, rank=rank),
            host("cudaLaunchKernel", at + 1, at + 5, kind=HostKind.RUNTIME, rank=rank, parent_row=len(hosts)),
        ]
        linked = {C.RANK: rank, C.DEVICE: rank, C.OP_ROW: len(hosts) - 2, C.LAUNCH_ROW: len(hosts) - 1}
        shape = {C.GRID_X: 4, C.GRID_Y: 1, C.GRID_Z: 1, C.BLOCK_X: 128, C.BLOCK_Y: 1, C.BLOCK_Z: 1}
        copy = {C.COPY_KIND: str(CopyKind.H2D), C.SRC_MEMORY: str(Memory.PAGEABLE), C.BYTES: 4096}
        devices += [
            kernel(10, 30, **{C.NAME: HOSTILE}, **linked, **shape, stream=7),
            kernel(30, 50 + rank, **{C.NAME: "ncclDevKernel_AllReduce_Sum_f32_RING"}, **linked, stream=9),
            memcpy(60, 70, **copy, **linked, stream=8),
        ]
    allocations = [{C.T_NS: 11, C.BYTES: 512, C.OP_ROW: 0}, {C.T_NS: 80, C.BYTES: -512, C.OP_ROW: 0}]
    return make_run(
        tmp_path_factory.mktemp("hostile") / "run",
        host_intervals=hosts,
        device_intervals=devices,
        allocations=allocations,
        steps=[step(1, 0, 100), step(1, 100, 200, rank=1)],
    )


@pytest.mark.slow_except("copies", "kernels", "ops")
@each
def test_hostile_names_are_text(name: str, hostile: Run) -> None:
    for block, sent in _shown(hostile, name).items():
        for figure in _figures(json.loads(sent)):
            assert "<script" not in json.dumps(figure), block
        assert "dangerously_allow_html" not in sent


def _figures(part: Any) -> list[Any]:
    if isinstance(part, list):
        return [found for one in part for found in _figures(one)]
    if not isinstance(part, dict):
        return []
    props = part.get("props", {})
    own = [props["figure"]] if "figure" in props else []
    return own + [found for child in props.values() for found in _figures(child)]


@pytest.mark.slow_except("copies", "kernels", "ops")
@each
def test_a_rank_and_a_device_can_be_chosen(name: str, hostile: Run) -> None:
    for block, sent in _shown(hostile, name, rank=1, device=1).items():
        assert sent, block
    assert _shown(hostile, name, rank=7)


@each
def test_an_empty_run_says_what_is_missing(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", host_intervals=[])
    shown = _shown(run, name)
    assert "tk-note" in shown["answer"]
    assert shown["tables"] == "[]" or "AgGrid" in shown["tables"]


@each
def test_a_run_of_the_host_alone_is_no_error(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", host_intervals=[host("aten::mm", 0, 100)], steps=[step(0, 0, 100)])
    assert _shown(run, name)["answer"] != "[]"


def test_the_answer_says_the_exact_numbers(hostile: Run) -> None:
    families = analyze(hostile, "kernels").tables["families"]
    sent = _shown(hostile, "kernels")["answer"]
    assert f'"{families["sum_ns"].iloc[0]} ns"' in sent


def test_what_torch_counted_answers_in_place_of_bounds(tmp_path: Path) -> None:
    one = {"id": "0/0", "function": "f", "part": "warm-up", C.DUR_NS: 2_000_000, "ops": 3, "guards": 1}
    facts = {"first_call_ns": 9, "graphs": 2, "breaks": [], "compilations": [one]}
    workload = {"name": "w", "level": "compile", "backend": "aot_eager", "compilation": facts}
    regions = [host(f"Torch-Compiled Region: {frame}/0", 50 * frame, 50 * frame + 40) for frame in (0, 1)]
    run = make_run(
        tmp_path / "run", meta={"workload": workload}, host_intervals=regions, steps=[step(0, 0, 100)]
    )
    counted, traced = json.loads(_shown(run, "compile")["answer"])[:2]
    assert _words(counted) == (
        "aot_eager compiled in 2.00 ms: 2 graphs, 1 guard, 0 graph breaks, 0 recompilations, "
        "0 compiled after the warm-up."
    )
    assert "graph break" not in _words(traced)


def _words(part: Any) -> str:
    """What a person reads of a component."""
    if isinstance(part, list):
        return "".join(_words(one) for one in part)
    return _words(part["props"].get("children", "")) if isinstance(part, dict) else str(part)


def test_largest_keeps_integers_beside_floats(hostile: Run) -> None:
    row = _largest_family(hostile)
    assert isinstance(row["count"], int)
    assert isinstance(row["share"], float)


def test_numbers_have_the_unit_of_their_column(hostile: Run) -> None:
    row = _largest_family(hostile)
    assert row.number("share").children == human(row["share"], "share")
    assert row.number("sum_ns").children == human(row["sum_ns"], "ns")


def test_an_unknown_column_or_table_is_an_error(hostile: Run) -> None:
    results = PageResults(_context(hostile, "kernels"), ("kernels",))
    for wrong in (
        lambda: _largest_family(hostile).number("sum_nss"),
        lambda: _largest_family(hostile)["sum_nss"],
        lambda: results.columns("families", "sum_nss"),
        lambda: results.frame("families")["sum_nss"],
        lambda: results.frame("family"),
    ):
        with pytest.raises(KeyError):
            wrong()


def _largest_family(run: Run) -> Row:
    return PageResults(_context(run, "kernels"), ("kernels",)).largest("families", "sum_ns")


def test_compiled_kernels_of_all_ranks_are_one_row_though_each_rank_has_another_hash(hostile: Run) -> None:
    names = [column.name for column in LINES.columns]
    rows = pd.DataFrame(
        [["", "", "triton_0", 4, 100 + rank, 0.5, "triton", "", str(rank)] for rank in (0, 1)], columns=names
    )
    context = _context(hostile, "compile")
    shown = replace(context, results=Results(analyze=lambda *_: Result({"lines": rows})))
    (row,) = PageResults(shown, ("compile",)).rows("lines")
    assert (row["name"], row["count"], row["sum_ns"], row["share"]) == ("triton_0", 8, 201, 1.0)


def test_a_switch_keeps_the_other_options_and_leaves_out_the_default(hostile: Run) -> None:
    choices = [("op", "By op"), ("shape", "By shape")]
    context = _context(hostile, "ops", options={"by": "shape", "measure": "x"})
    assert PageResults(context, ("ops",)).read_choice("by", choices) == "shape"
    first, second = PageResults(context, ("ops",)).show_switch("by", "By", choices).children
    assert first.href.endswith("measure=x")
    assert "by=" not in first.href
    assert second.to_plotly_json()["props"]["aria-current"] == "true"


def test_an_unknown_choice_is_the_default(hostile: Run) -> None:
    context = _context(hostile, "ops", options={"by": "<b>"})
    assert PageResults(context, ("ops",)).read_choice("by", [("op", "By op")]) == "op"


def test_rows_lead_to_the_timeline(hostile: Run) -> None:
    link = f"/timeline?run={hostile.path.name}&row=device_intervals:"
    figures = _shown(hostile, "copies")["figures"]
    assert link in figures
    assert (
        "Link bandwidth unknown. Nominal with 16 lanes: PCIe 3.0 15.8, PCIe 4.0 31.5, PCIe 5.0 63.0"
        in figures
    )


def test_files_of_lines_are_named_once() -> None:
    lines = "/home/me/train.py:13, /home/me/train.py:15, /home/me/loss.py:2"
    assert compile_page._shorten_lines(lines) == "train.py:13, 15, loss.py:2"


def test_a_block_is_computed_once_for_each_view_theme_and_baseline(hostile: Run, tmp_path: Path) -> None:
    computed: list[tuple[Any, ...]] = []

    def show(results: PageResults) -> list[Any]:
        context = results.context
        computed.append((context.view.options, context.dark, context.base))
        if len(computed) == 1:
            raise ValueError("once")
        return []

    (block,) = result_blocks(("ops",), shown=show).values()
    context = _context(hostile, "ops")
    with pytest.raises(ValueError, match="once"):
        block(context)
    shown = block(context)  # errors are not kept
    assert block(context) is shown
    options, other = {"by": "op"}, make_run(tmp_path)
    for changed in ({"view": replace(context.view, options=options)}, {"dark": True}, {"base": other}):
        for _ in range(2):
            assert block(replace(context, **changed)) is not shown  # type: ignore[arg-type]
    assert computed == [({}, False, None)] * 2 + [
        (options, False, None),
        ({}, True, None),
        ({}, False, other),
    ]


def test_a_generated_page_has_the_sentence_of_its_analysis(tmp_path: Path) -> None:
    shown = _shown(read_back(tmp_path / "run"), "sync_points")["result"]
    assert "Costliest wait: " in shown
    assert "cudaMemcpyAsync" in shown.partition("Costliest wait: ")[2][:200]
    assert "Costliest wait: " not in _shown(make_run(tmp_path / "empty"), "sync_points")["result"]


def test_many_devices_share_a_sentence_on_their_rates() -> None:
    (spec,) = (table for table in analysis.get("roofline").tables if table.name == "summary")
    rows = [Row(spec, {"device_name": "H100", "mfu": mfu, "tflops": 1_000 * mfu}) for mfu in (0.2, 0.1, 0.3)]
    texts = [part if isinstance(part, str) else part.children for part in roofline._devices(rows)]
    assert "".join(texts) == (
        "3 devices (H100) reached a model FLOPs utilization (MFU) of 10.0% to 30.0% and "
        "100.00 TFLOP/s to 300.00 TFLOP/s over the capture. "
    )
