"""Recorded traces: the breakdown equals the independent reference to the nanosecond.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.compute as pc
import pytest

from tests.traces import table
from tracekit.analysis import analyze
from tracekit.ingest import import_traces
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from tracekit.store import Store

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
REFERENCE = TRACES / "TRUTH.json"
TRUTH: dict[str, Any] = json.loads(REFERENCE.read_text()) if REFERENCE.is_file() else {}
SHUFFLED = (
    "pytorch__kineto/resnet50_w0_2021_barearray.json.gz",
    "facebookresearch__HolisticTraceAnalysis/sampled_rank0of128.json.gz",
    "AMD-AGI__TraceLens/h100_bert_small.json.gz",
)
SAME = (
    "window_ns",
    "active_ns",
    "movement_ns",
    "idle_ns",
    "copies_union_ns",
    "kernels",
    "memcpys",
    "memsets",
)


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
        idle = run.table(
            "device_intervals",
            columns=[C.DUR_NS],
            where=(pc.field(C.KIND) == "idle") & (pc.field(C.DEVICE) == int(device)),
        )[C.DUR_NS]
        assert len(idle) == expected["idle_gaps"]
        assert max(idle, default=0) == expected["max_gap_ns"]
        assert (idle >= 1_000_000).sum() == expected["idle_gaps_ge_1ms"]
        assert idle.sum() == expected["idle_ns"]
    assert whole["kernel_sum_ns"].sum() == truth["kernel_sum_ns"]
    assert whole["kernels"].sum() == truth["kernels"]


@pytest.mark.parametrize("name", [name for name in TRUTH if name in SHUFFLED])
def test_the_order_and_form_of_a_recorded_trace_do_not_matter(
    name: str, store: Store, tmp_path: Path
) -> None:
    """Whole microseconds make many ties; none of them may be broken by the order of the file."""
    text = gzip.decompress((TRACES / name).read_bytes())
    document = json.loads(text)  # the shortest text of a double is the text it was read from
    events = document if isinstance(document, list) else document["traceEvents"]
    random.Random(20261121).shuffle(events)
    path = tmp_path / "shuffled.json"
    path.write_text(json.dumps(document, separators=(",", ":")))
    (recorded,), (shuffled,) = import_traces(store, [TRACES / name]), import_traces(store, [path])
    for kind in TABLES:
        pd.testing.assert_frame_equal(table(recorded, kind), table(shuffled, kind), obj=kind)
