"""An trace keeps the rules of its format: tracks nest, arrows are bound; it is read back the same."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import host, kernel, make_run
from tests.traces import imported
from tracekit.export.chrome import chrome_trace
from tracekit.export.tables import Source
from tracekit.export.tracks import find_crossing
from tracekit.runs.store import Store
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.runs.run import Run

TRAINING = Path(__file__).parents[3] / "samples" / "simulated" / "training.json.gz"
Interval = tuple[int, int]


def events(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(b"".join(chrome_trace(run)))["traceEvents"]
    return found


def test_of_intervals_that_start_together_the_longest_comes_first(tmp_path: Path) -> None:
    rows = [host("inner", 5, 20), host("outer", 5, 50), host("before", 0, 5), host("first", 5, 20)]
    run = make_run(tmp_path, host_intervals=rows)
    batches = Source(run).nested("host_intervals", [C.NAME, C.START_NS, C.DUR_NS, C.ROW_ID], C.ROW_ID)
    names = [name for batch in batches for name in batch[C.NAME].to_pylist()]
    assert names == ["before", "outer", "inner", "first"]


def ns(event: dict[str, Any], key: str) -> int:
    return round(event[key] * 1_000)


def slices(found: list[dict[str, Any]]) -> dict[tuple[int, int], list[Interval]]:
    tracks: dict[tuple[int, int], list[Interval]] = defaultdict(list)
    for one in found:
        if one["ph"] == "X":
            tracks[one["pid"], one["tid"]].append((ns(one, "ts"), ns(one, "ts") + ns(one, "dur")))
    return tracks


def nests(intervals: list[Interval]) -> bool:
    """Whether intervals in this order are each inside of the last one that is open, or after it."""
    open_: list[int] = []
    last = -1
    for start, end in intervals:
        while open_ and open_[-1] <= start:
            open_.pop()
        if start < last or (open_ and end > open_[-1]):
            return False
        open_.append(end)
        last = start
    return True


intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), min_size=1, max_size=25)


@given(intervals)
def test_whatever_crosses_goes_to_a_track_where_it_nests(rows: list[Interval]) -> None:
    ordered = sorted((start, start + length) for start, length in rows)
    ordered.sort(key=lambda one: (one[0], -one[1]))
    start, end = (np.array(column) for column in zip(*ordered, strict=True))
    ids, lane = find_crossing([start, end, np.arange(len(ordered))])
    where = dict(zip(ids.tolist(), lane.tolist(), strict=True))
    tracks: dict[int, list[Interval]] = defaultdict(list)
    for number, one in enumerate(ordered):
        tracks[where.get(number, -1)].append(one)
    assert all(nests(track) for track in tracks.values())
    assert bool(where) == (not nests(ordered))


def test_rows_that_cross_share_one_more_track_where_they_nest() -> None:
    ids, lane = find_crossing([np.array(column) for column in ([0, 5, 6], [10, 15, 7], [7, 8, 9])])
    assert (ids.tolist(), lane.tolist()) == ([8, 9], [0, 0])


def test_the_shorter_of_two_that_cross_goes_with_what_it_encloses(tmp_path: Path) -> None:
    calls = [host("long", 0, 100_000), host("short", 90_000, 120_000), host("inner", 110_000, 115_000)]
    found = events(make_run(tmp_path, host_intervals=calls))
    tids = {one["name"]: one["tid"] for one in found if one["ph"] == "X"}
    assert tids["long"] == 1
    assert tids["short"] == tids["inner"] != 1
    names = {one["tid"]: one["args"]["name"] for one in found if one["name"] == "thread_name"}
    assert names[tids["short"]] == "thread 1, crossing 1"


def test_the_longest_of_one_start_comes_first_also_across_batches(tmp_path: Path) -> None:
    many = [host("inner", 5_000, 6_000), *(host("outer", 5_000, 9_000 + n) for n in range(3))]
    found = events(make_run(tmp_path, host_intervals=many))
    assert all(nests(track) for track in slices(found).values())


def test_an_arrow_ends_in_the_work_and_begins_in_the_call_wherever_these_went(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[host("a", 0, 100), host("cudaLaunchKernel", 90, 120)],
        device_intervals=[
            kernel(100, 300, **{C.LAUNCH_ROW: 1, C.STREAM: 7}),
            kernel(250, 320, **{C.LAUNCH_ROW: 1, C.STREAM: 7}),
        ],
    )
    bound(events(run), 2)


def bound(found: list[dict[str, Any]], count: int) -> None:
    """Every arrow has both ends once, each at an interval's start on its track, and in order of time."""
    ends: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    begins = {(one["pid"], one["tid"], one["ts"]) for one in found if one["ph"] == "X"}
    for one in found:
        if one["ph"] in "sf":
            assert one["ph"] not in ends[one["id"]]
            ends[one["id"]][one["ph"]] = one
            assert (one["pid"], one["tid"], one["ts"]) in begins
    assert [set(pair) for pair in ends.values()] == [{"s", "f"}] * count


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return imported(Store(tmp_path_factory.mktemp("training")), TRAINING)


def test_a_trace_keeps_the_rules_of_its_format(training: Run) -> None:
    found = events(training)
    assert {one["ph"] for one in found} == {"M", "X", "C", "s", "f"}
    for one in found:
        assert type(one["pid"]) is int
        assert 0 <= one["pid"] < 1 << 31
        assert one["ph"] == "C" or (type(one["tid"]) is int and 0 <= one["tid"] <= 1 << 31)
        assert one["ph"] == "M" or one["ts"] >= 0
        assert one["ph"] != "X" or one["dur"] >= 0
    assert all(nests(track) for track in slices(found).values())
    launches = training.table("device_intervals")[C.LAUNCH_ROW].notna().sum()
    assert launches > 0
    bound(found, launches)
    named = {(one["pid"], one["tid"]) for one in found if one["name"] == "thread_name"}
    devices = {
        (one["pid"], one["tid"]) for one in found if one.get("cat") in {"kernel", "idle", "gpu_memcpy"}
    }
    assert devices <= named


def test_it_is_read_back_the_same(training: Run, tmp_path: Path) -> None:
    file = tmp_path / "again.json.gz"
    file.write_bytes(gzip.compress(b"".join(chrome_trace(training))))
    again = imported(Store(tmp_path / "again"), file)
    assert again.meta.t0_unix_ns == training.meta.t0_unix_ns
    interval = [C.KIND, C.NAME, C.START_NS, C.DUR_NS, C.STEP, C.CORRELATION_ID]
    device = [C.DEVICE, C.STREAM, C.GRID_X, C.BLOCK_X, C.BYTES, C.COPY_KIND, C.REGISTERS, C.IDLE_CAUSE]
    same = {
        "device_intervals": [*interval, *device],
        "host_intervals": [*interval, C.TID, C.DEPTH, C.SEQUENCE, C.PHASE],
        "steps": [C.STEP, C.NAME, C.START_NS, C.DUR_NS],
    }
    for table, columns in same.items():
        left, right = (each.table(table, columns=columns) for each in (training, again))
        order = [C.START_NS, C.DUR_NS, C.NAME]
        left, right = (one.sort_values(order, ignore_index=True) for one in (left, right))
        for column in columns:
            assert left[column].astype("object").tolist() == right[column].astype("object").tolist(), column
    assert launching(again) == launching(training)


def launching(run: Run) -> list[tuple[str, int, int]]:
    """Each launched interval with the call that launched it: its name and start."""
    calls = run.table("host_intervals", columns=[C.ROW_ID, C.NAME, C.START_NS]).set_index(C.ROW_ID)
    work = run.table("device_intervals", columns=[C.LAUNCH_ROW, C.START_NS]).dropna()
    called = calls.loc[work[C.LAUNCH_ROW].astype("int64")]
    return sorted(zip(called[C.NAME].astype(str), called[C.START_NS], work[C.START_NS], strict=True))
