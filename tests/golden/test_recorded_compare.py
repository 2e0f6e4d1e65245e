"""Recorded programs that were compiled, and a model on two kinds of GPU.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.golden.test_truth import TRACES
from tracekit.analysis import analyze, compare

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

NANOGPT = "KellerJordan__modded-nanogpt/h100_h2dprefetch_rank0"
SEGMENT = "pytorch-labs__segment-anything-fast/amg_compile_a100_pinned"
LENS = "AMD-AGI__TraceLens"

recorded = pytest.mark.skipif(not TRACES.is_dir(), reason="no recorded traces")


@pytest.mark.skipif(TRACES.is_dir(), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: nothing was compared")


def imported(shared_runs: SharedRuns, name: str) -> Run:
    return shared_runs.of(TRACES / f"{name}.json.gz")


def summary(run: Run) -> dict[str, Any]:
    (row,) = analyze(run, "compile").tables["summary"].astype(object).to_dict("records")
    return {str(name): value for name, value in row.items()}


@recorded
def test_a_training_of_several_compiled_functions(shared_runs: SharedRuns) -> None:
    """Counted in the trace by hand: 54 regions of frames 0 to 4, compiled 14 times in all."""
    run = imported(shared_runs, NANOGPT)
    row = summary(run)
    counted = [row[name] for name in ("regions", "frames", "breaks", "recompiled", "graph_calls", "lookups")]
    assert counted == [54, 5, 4, 10, 58, 54]
    assert (row["lookup_ns"], row["compilations"], row["replays"]) == (922_628, 0, 0)
    assert analyze(run, "compile").findings == ()


@pytest.mark.slow
@recorded
def test_an_inference_by_graphs_of_an_older_version(shared_runs: SharedRuns) -> None:
    run = imported(shared_runs, SEGMENT)
    row = summary(run)
    assert [row[name] for name in ("regions", "lookups", "lookup_ns", "replays")] == [32, 32, 499_000, 32]
    assert any("no numbers" in note for note in analyze(run, "compile").notes)


@pytest.mark.slow
@recorded
def test_a_model_on_two_gpus(shared_runs: SharedRuns) -> None:
    base, head = (imported(shared_runs, f"{LENS}/{name}") for name in ("h100_owlv2", "mi300x_owlv2"))
    result = compare(base, head, "device_compare")
    table, notes = result.tables["ops"].set_index("op"), result.notes
    softmax, linear = (
        table.loc[op] for op in ("aten::softmax > aten::_softmax", "aten::linear > aten::addmm")
    )
    assert (softmax["base_count"], softmax["head_count"]) == (180, 180)
    assert softmax["gain"] == pytest.approx(262.54 / 153.99, rel=1e-3)
    assert softmax["allowed"] == pytest.approx(5325 / 3350, rel=1e-3)
    assert linear["allowed"] == pytest.approx(1307.4 / 989.4, rel=1e-3)
    assert linear["gain"] < 1
    assert any("53% (base) and 70% (head)" in note for note in notes)
    assert any("32 threads on the base and 64 on the head" in note for note in notes)
    assert any(note.startswith("aten::bmm gains 2.39×") and "s1688gemm" in note for note in notes)
    codes = {finding.title.split(" runs")[0] for finding in result.findings}
    assert "aten::softmax > aten::_softmax" not in codes
