"""Copies of recorded traces: what was seen in them by eye is found.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.test_truth import TRACES, TRUTH
from tests.shared_runs import analyze, compare

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

RESNET = "pytorch__kineto/resnet50_w0_torch19.json.gz"
BENCHMARK = "pytorch__benchmark/h2d_pinned_a100.json.gz"
ALEXNET = "facebookresearch__HolisticTraceAnalysis/alexnet_critical_path.json.gz"
recorded = pytest.mark.skipif(not TRUTH, reason=f"no recorded traces at {TRACES}")


@pytest.mark.skipif(bool(TRUTH), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: the reference was not checked")


@pytest.mark.slow
@recorded
def test_a_batch_and_its_labels_are_told_with_their_line(shared_runs: SharedRuns) -> None:
    run = shared_runs.of(TRACES / RESNET)
    tables = analyze(run, "h2d_copies").tables
    assert tables["groups"][["bytes_each", "copies_per_step", "source", "outer_op"]].to_numpy().tolist() == [
        [19_267_584, 1.0, "resnet50_profiler_api.py(44): <module>", "aten::to"],
        [256, 1.0, "resnet50_profiler_api.py(44): <module>", "aten::to"],
    ]
    assert (tables["per_step"]["excess"] == 1).all()
    assert analyze(run, "h2d_copies").findings == ()
    (finding,) = analyze(run, "pinned_memory").findings
    assert (finding.code, finding.saving_ns_per_step) == ("pageable_copies", None)
    assert compare(run, run, "h2d_copies").findings == ()


@recorded
def test_copies_that_run_at_once_in_both_directions_are_no_offloading(shared_runs: SharedRuns) -> None:
    assert analyze(shared_runs.of(TRACES / BENCHMARK), "h2d_copies").findings == ()


@recorded
def test_weights_moved_once_are_neither_repeated_nor_wider(shared_runs: SharedRuns) -> None:
    result = analyze(shared_runs.of(TRACES / ALEXNET), "h2d_copies")
    assert (result.findings, result.tables["per_step"]["copies"].tolist()) == ((), [16])
