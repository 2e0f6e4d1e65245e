from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.analyses.graphs import NO_GRAPHS, Repeat, largest_repeat

from samples.simulator import Program, trace
from samples.simulator.planted.graphs import (
    ATTENTION_NS,
    EMBED_NS,
    GEMM_NS,
    HEAD_NS,
    LAYER,
    LAYERS,
    NORM_NS,
    STEPS,
    capture,
    kernels,
    replay,
)
from tests.tiers import examples
from tracekit.analysis import analyze
from tracekit.ingest.importer import import_each
from tracekit.runs.run import Run
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.analysis import Result

LAYER_NS = sum(dur_ns for _, _, dur_ns in LAYER)
GRAPH_NS = sum(dur_ns for _, dur_ns in kernels())


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("graphs")
    own, of_capture = folder / "replay.json", folder / "capture.json"
    own.write_bytes(trace(replay()))
    of_capture.write_bytes(trace(capture()))
    (run,) = import_each(Store(folder / "store"), [own], captures=[of_capture])
    assert isinstance(run, Run)
    return run


def test_a_graph_has_the_times_of_its_launches(captured: Run) -> None:
    result = analyze(captured, "graphs")
    (graph,) = result.tables["graphs"].to_dict("records")
    assert (graph["launches"], graph["kernels"], graph["attributed"]) == (
        STEPS,
        len(kernels()),
        len(kernels()),
    )
    launches = result.tables["launches"]
    assert launches["sum_ns"].tolist() == [GRAPH_NS] * STEPS
    assert launches["span_ns"].tolist() == [GRAPH_NS] * STEPS
    assert launches["gap_ns"].tolist() == [0] * STEPS
    assert launches["share"].sum() == pytest.approx(GRAPH_NS / (GRAPH_NS + NORM_NS))


def test_time_belongs_to_the_ops_that_captured_the_graph(captured: Run) -> None:
    ops = analyze(captured, "graphs").tables["ops"].set_index(["op", "module"])
    assert int(ops["sum_ns"].sum()) == STEPS * GRAPH_NS
    both = (ATTENTION_NS + NORM_NS) * LAYERS * STEPS
    assert ops.loc["vllm::attention", "Layer"].tolist()[:3] == [LAYERS * STEPS, 2 * LAYERS * STEPS, both]
    assert ops.loc["aten::addmm", "Layer"].tolist()[:2] == [2 * LAYERS * STEPS] * 2
    assert ops.loc["aten::gather", "Decoder"]["calls"] == STEPS


def test_the_layer_is_found_with_or_without_a_capture(captured: Run, shared_runs: SharedRuns) -> None:
    for run in (captured, shared_runs.simulated(replay())):
        tables = analyze(run, "graphs").tables
        first = tables["structure"][tables["structure"]["graph"] == 0]
        assert first[["part", "repeats", "kernels", "mean_ns"]].to_numpy().tolist() == [
            ["before", 1, 1, EMBED_NS],
            ["layers", LAYERS, len(LAYER), LAYER_NS],
            ["after", 1, 1, HEAD_NS],
        ]
        layer = tables["layer"][tables["layer"]["graph"] == 0]
        assert layer["name"].tolist() == [name for _, name, _ in LAYER]
        assert layer["mean_ns"].tolist() == [dur_ns for _, _, dur_ns in LAYER]
        assert layer["share"].iloc[1] == pytest.approx(GEMM_NS * LAYERS / GRAPH_NS)


def test_without_a_capture_the_note_says_what_would_help(shared_runs: SharedRuns) -> None:
    result = analyze(shared_runs.simulated(replay()), "graphs")
    assert "ops" not in result.tables
    assert any("--capture-trace" in note for note in result.notes)


@pytest.mark.slow
def test_other_analyses_use_the_captured_op(captured: Run, shared_runs: SharedRuns) -> None:
    by_op = analyze(captured, "kernels").tables["by_op"].set_index("op")
    assert by_op.loc["aten::addmm", "count"] == 2 * LAYERS * STEPS
    assert "(no op recorded)" not in by_op.index
    ops = analyze(captured, "ops").tables["ops"].set_index("name")
    embedding, gather = ops.loc["aten::embedding"], ops.loc["aten::gather"]
    assert (embedding["device_self_ns"], embedding["device_total_ns"]) == (0, STEPS * EMBED_NS)
    assert (gather["calls"], gather["launches"], gather["device_self_ns"]) == (0, STEPS, STEPS * EMBED_NS)
    assert ops.loc["aten::argmax", ["calls", "device_self_ns"]].tolist() == [STEPS, STEPS * NORM_NS]
    assert ops["device_share"].sum() == pytest.approx(1)
    shapes = analyze(captured, "ops").tables["shapes"]
    assert shapes["device_self_ns"].sum() == STEPS * (GRAPH_NS + NORM_NS)
    without = analyze(shared_runs.simulated(replay()), "ops").tables["ops"]
    assert without["device_self_ns"].sum() == STEPS * NORM_NS


def test_a_run_without_graphs_says_so(shared_runs: SharedRuns) -> None:
    program = Program()
    with program.step(), program.op("aten::mm"):
        program.kernel("gemm", 1_000)
    assert noted(analyze(shared_runs.simulated(program), "graphs")) == [NO_GRAPHS]


def noted(result: Result) -> list[str]:
    assert not result.tables
    return [str(note) for note in result.notes]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ([], None),
        ([1], None),
        ([1, 2, 3], None),
        ([5, 5], Repeat(0, 1, 2)),
        ([1, 2, 1, 2, 1], Repeat(0, 2, 2)),
        ([9, 1, 1, 2, 1, 1, 2, 1, 1, 2, 7], Repeat(1, 3, 3)),
        ([1, 2, 1, 2, 8, 3, 4, 5, 3, 4, 5], Repeat(5, 3, 2)),
    ],
)
def test_the_repeat_that_covers_most_is_found(sequence: list[int], expected: Repeat | None) -> None:
    assert largest_repeat(np.array(sequence, np.int64)) == expected


def brute_force(sequence: list[int]) -> Repeat | None:
    """The best of all repeats, each checked element by element."""
    found = []
    for period in range(1, len(sequence) // 2 + 1):
        for start in range(len(sequence) - 2 * period + 1):
            count = 1
            first = sequence[start : start + period]
            while sequence[start + count * period : start + (count + 1) * period] == first:
                count += 1
            if count > 1:
                found.append(Repeat(start, period, count))
    return min(found, key=lambda one: (-one.period * one.repeats, one.period, one.start), default=None)


few = st.integers(0, 3)


@settings(max_examples=examples(300))
@given(
    st.lists(few, max_size=6),
    st.lists(few, min_size=1, max_size=8),
    st.integers(1, 6),
    st.lists(few, max_size=6),
)
def test_no_other_repeat_covers_more(
    before: list[int], layer: list[int], count: int, after: list[int]
) -> None:
    sequence = before + layer * count + after
    assert largest_repeat(np.array(sequence, np.int64)) == brute_force(sequence)


def test_captured_ops_are_below_the_node_that_launches_the_graph(captured: Run) -> None:
    nodes = analyze(captured, "call_tree").tables["nodes"].set_index("node")
    step = nodes[nodes["name"] == "ProfilerStep"]
    assert step["device_total_ns"].tolist() == [STEPS * (GRAPH_NS + NORM_NS)]
    below = nodes[nodes["parent"] == step.index[0]].set_index("name")
    assert set(below.index) == {"aten::argmax", "aten::embedding", *(op for op, _, _ in LAYER), "aten::mm"}
    assert below.loc["vllm::attention", "device_self_ns"] == (ATTENTION_NS + NORM_NS) * LAYERS * STEPS
    assert below.loc["aten::embedding", ["calls", "device_self_ns"]].tolist() == [0, 0]
    gather = nodes[nodes["name"] == "aten::gather"]
    assert nodes.loc[gather["parent"], "name"].tolist() == ["aten::embedding"]
    assert gather[["calls", "depth", "device_self_ns"]].to_numpy().tolist() == [[0, 2, STEPS * EMBED_NS]]
    assert (nodes.index[nodes["parent"].notna()] > nodes["parent"].dropna()).all()
