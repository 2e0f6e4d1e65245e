"""Memory lanes: every pixel column has the exact extremes of the allocated bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracekit.dashboards.app import create_app
from tracekit.dashboards.site import Site
from tracekit.dashboards.timeline import routes
from tracekit.dashboards.timeline.read_columns import Levels, Window, read_levels, render_levels

from tests.builders import make_run
from tests.unit.dashboards.timeline_runs import training_run, unpacked
from tracekit.runs.store import Store
from tracekit.schema import HOST_DEVICE, C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders import Row


def event(t_ns: int, size: int, total: int | None = None, **more: Any) -> Row:
    return {C.T_NS: t_ns, C.RANK: 0, C.DEVICE: 0, C.BYTES: size, C.TOTAL_ALLOCATED: total, **more}


def read(path: Path, *events: Row) -> tuple[Levels, ...]:
    return read_levels(make_run(path, allocations=list(events)))


def test_running_totals_are_taken_as_recorded(tmp_path: Path) -> None:
    (found,) = read(tmp_path, event(10, 100, 1_100), event(20, -100, 1_000), event(20, 0, 9))
    assert (found.total, found.t_ns.tolist(), found.bytes.tolist()) == (True, [10, 20], [1_000, 1_100, 1_000])
    assert found.describe(7) == {
        "id": 7,
        "group": "rank 0 · GPU 0",
        "title": "memory · peak 1.07 KiB",
        "kind": "memory",
        "rank": 0,
        "device": 0,
        "stream": None,
        "pid": None,
        "tid": None,
        "depth": 0,
        "rows": 2,
        "low": 1_000,
        "high": 1_100,
        "total": True,
    }


def test_where_one_total_is_missing_the_change_since_the_start_is_shown(tmp_path: Path) -> None:
    (found,) = read(tmp_path, event(10, -64, 5), event(20, 8))
    assert (found.total, found.bytes.tolist()) == (False, [0, -64, -56])


def test_each_device_of_each_rank_has_a_lane_and_the_host_comes_last(tmp_path: Path) -> None:
    places = [(1, 0), (0, HOST_DEVICE), (0, 1), (0, 0)]
    found = read(tmp_path, *(event(5, 8, **{C.RANK: rank, C.DEVICE: device}) for rank, device in places))
    assert [(one.rank, one.device) for one in found] == [(0, 0), (0, 1), (0, HOST_DEVICE), (1, 0)]
    assert [one.group for one in found][1:3] == ["rank 0 · GPU 1", "rank 0 · host"]


def test_a_run_without_events_has_no_lane(tmp_path: Path) -> None:
    assert read_levels(training_run(tmp_path)) == ()


moments = st.lists(st.tuples(st.integers(0, 60), st.integers(-9, 9)), min_size=1, max_size=40)


@given(moments, st.integers(-5, 50), st.integers(1, 40), st.integers(1, 50))
def test_columns_have_the_exact_extremes(
    events: list[tuple[int, int]], start: int, span: int, width: int
) -> None:
    """Against every level that holds at some instant of a column, one after the other."""
    events.sort(key=lambda one: one[0])
    times = [t for t, _ in events]
    held = [0, *np.cumsum([size for _, size in events]).tolist()]
    found = Levels(rank=0, device=0, t_ns=np.array(times), bytes=np.array(held), total=False)
    window = Window(start=start, end=start + span, width=width)
    sent = {name: array.tolist() for name, array in render_levels(found, window).items()}
    edges = window.edges.tolist()
    at, last = dict(zip(sent["column"], range(width), strict=False)), None
    for column in range(width):
        begin, end = edges[column], edges[column + 1]
        inside = [place for place, t in enumerate(times) if begin <= t < end]
        before = held[sum(t < begin for t in times)]
        seen = [held[place + 1] for place in inside]
        seen += [] if inside and times[inside[0]] == begin else [before]
        if column in at:
            place = at[column]
            assert (sent["low"][place], sent["high"][place]) == (min(seen), max(seen))
            last = sent["last"][place]
        assert not inside or column in at
        assert last == held[sum(t < end for t in times)]


@pytest.fixture
def client(tmp_path: Path) -> Any:
    gib = 1 << 30
    events = [event(100, 3 * gib, 7 * gib), event(500, -gib, 6 * gib)]
    host_events = [event(300, 64, **{C.DEVICE: HOST_DEVICE})]
    run = training_run(tmp_path, allocations=[events[0], *host_events, events[1]])
    app = create_app(Store(tmp_path))
    routes.connect(Site(app=app, store=Store(tmp_path), pages={}))
    asked = app.server.test_client()
    return lambda path: asked.get(f"/timeline/{run.path.name}/{path}")


def test_lanes_stand_below_their_device_and_their_host(client: Any) -> None:
    reported = client("lanes").json["lanes"]
    by_group: dict[str, list[str]] = {}
    for lane in reported:
        by_group.setdefault(lane["group"], []).append(lane["kind"])
    assert by_group["rank 0 · GPU 0"][-1] == by_group["rank 0 · host"][-1] == "memory"
    assert sorted(lane["id"] for lane in reported) == list(range(len(reported)))
    assert [lane["kind"] for lane in client("lanes?device=1").json["lanes"]][-1] == "memory"
    assert client("lanes?rank=1").json["lanes"] == []


def test_levels_are_drawn_beside_intervals_in_the_order_asked_for(client: Any) -> None:
    count = len(client("lanes").json["lanes"]) - 2
    answer = client(f"draw?from=0&to=1000&width=10&lanes={count},3")
    header, lanes = unpacked(answer.data)
    assert [(lane["id"], lane["mode"]) for lane in lanes] == [(count, "levels"), (3, "exact")]
    gib = float(1 << 30)
    assert lanes[0]["column"] == [0, 1, 5]
    assert lanes[0]["low"] == [4 * gib, 7 * gib, 6 * gib]
    assert lanes[0]["high"] == [4 * gib, 7 * gib, 6 * gib]
    assert lanes[0]["last"] == [4 * gib, 7 * gib, 6 * gib]
    assert "ampere_sgemm" in header["names"]
    assert len(unpacked(client("draw").data)[1]) == count + 2


def test_only_drawings_take_the_number_of_a_memory_lane(client: Any) -> None:
    count = len(client("lanes").json["lanes"]) - 2
    assert client(f"summary?lanes={count}").status_code == 400
    assert client(f"draw?lanes={count + 2}").status_code == 400
