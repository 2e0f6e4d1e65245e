"""Recorded traces: the breakdown equals the independent reference to the nanosecond.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.analysis import analyze
from tracekit.ingest import import_traces

if TYPE_CHECKING:
    from tracekit.store import Store

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
REFERENCE = TRACES / "TRUTH.json"
TRUTH: dict[str, Any] = json.loads(REFERENCE.read_text()) if REFERENCE.is_file() else {}
SAME = ("window_ns", "active_ns", "movement_ns", "idle_ns", "kernels", "memcpys", "memsets")


@pytest.mark.skipif(bool(TRUTH), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: the reference was not checked")


@pytest.mark.parametrize("name", TRUTH)
def test_whole_breakdown_equals_the_reference(name: str, store: Store) -> None:
    (run,) = import_traces(store, [TRACES / name])
    tables, truth = analyze(run, "gpu_breakdown").tables, TRUTH[name]
    if not truth["devices"]:
        assert list(tables) == ["host"]
        return
    whole = tables["whole"]
    got = {str(row["device"]): row for row in whole.to_dict("records")}
    assert set(got) == set(truth["devices"])
    for device, expected in truth["devices"].items():
        row = got[device]
        assert {key: row[key] for key in SAME} == {key: expected[key] for key in SAME}
        # the reference's union of copies holds the memsets too
        assert row["movement_union_ns"] == expected["copies_union_ns"]
        if not row["memsets"]:
            assert row["copies_union_ns"] == expected["copies_union_ns"]
    assert whole["kernel_sum_ns"].sum() == truth["kernel_sum_ns"]
    assert whole["kernels"].sum() == truth["kernels"]
