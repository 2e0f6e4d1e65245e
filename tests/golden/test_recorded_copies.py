"""Copies of recorded traces: counts, bytes and sums equal the independent reference.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.test_truth import TRACES, TRUTH
from tracekit.analysis import analyze, compare
from tracekit.ingest import import_traces
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.run import Run
    from tracekit.store import Store

RESNET = "pytorch__kineto/resnet50_w0_torch19.json.gz"
BENCHMARK = "pytorch__benchmark/h2d_pinned_a100.json.gz"
ALEXNET = "facebookresearch__HolisticTraceAnalysis/alexnet_critical_path.json.gz"
recorded = pytest.mark.skipif(not TRUTH, reason=f"no recorded traces at {TRACES}")


def imported(store: Store, name: str) -> Run:
    (run,) = import_traces(store, [TRACES / name])
    return run


@pytest.mark.skipif(bool(TRUTH), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: the reference was not checked")


@pytest.mark.parametrize("name", TRUTH)
def test_copies_by_name_equal_the_reference(name: str, store: Store) -> None:
    tables, truth = analyze(imported(store, name), "pinned_memory").tables, TRUTH[name]["copies"]
    if not truth:
        assert tables == {}
        return
    got = tables["by_name"].set_index(C.NAME)
    assert set(got.index) == set(truth)
    for copy, expected in truth.items():
        row = got.loc[copy]
        assert (row["copies"], row["sum_ns"]) == (expected["count"], expected["sum_ns"])
        assert (0 if row.isna()["bytes"] else row["bytes"]) == expected.get("bytes", 0)
    for name_of, table in tables.items():
        assert table["copies"].sum() == sum(one["count"] for one in truth.values()), name_of
        assert table["sum_ns"].sum() == sum(one["sum_ns"] for one in truth.values()), name_of


@recorded
def test_a_batch_and_its_labels_are_told_with_their_line(store: Store) -> None:
    run = imported(store, RESNET)
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
def test_copies_that_run_at_once_in_both_directions_are_no_offloading(store: Store) -> None:
    assert analyze(imported(store, BENCHMARK), "h2d_copies").findings == ()


@recorded
def test_weights_moved_once_are_neither_repeated_nor_wider(store: Store) -> None:
    result = analyze(imported(store, ALEXNET), "h2d_copies")
    assert (result.findings, result.tables["per_step"]["copies"].tolist()) == ((), [16])
