"""Lanes of memory and counters: every pixel column has the exact extremes of what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracekit.dashboards.app import create_app
from tracekit.dashboards.site import Site
from tracekit.dashboards.timeline import routes
from tracekit.dashboards.timeline.levels import Levels, read_counters, read_memory, render_levels
from tracekit.dashboards.timeline.read_columns import Window

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
    return read_memory(make_run(path, allocations=list(events)))


def test_running_totals_are_taken_as_recorded(tmp_path: Path) -> None:
    (found,) = read(tmp_path, event(10, 100, 1_100), event(20, -100, 1_000), event(20, 0, 9))
    assert (found.total, found.t_ns.tolist(), found.values.tolist()) == (
        True,
        [10, 20],
        [1_000, 1_100, 1_000],
    )
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
        "limit": None,
        "total": True,
        "unit": "bytes",
    }


def test_where_one_total_is_missing_the_change_since_the_start_is_shown(tmp_path: Path) -> None:
    (found,) = read(tmp_path, event(10, -64, 5), event(20, 8))
    assert (found.total, found.values.tolist()) == (False, [0, -64, -56])


def test_each_device_of_each_rank_has_a_lane_and_the_host_comes_last(tmp_path: Path) -> None:
    places = [(1, 0), (0, HOST_DEVICE), (0, 1), (0, 0)]
    found = read(tmp_path, *(event(5, 8, **{C.RANK: rank, C.DEVICE: device}) for rank, device in places))
    assert [(one.rank, one.device) for one in found] == [(0, 0), (0, 1), (0, HOST_DEVICE), (1, 0)]
    assert [one.group for one in found][1:3] == ["rank 0 · GPU 1", "rank 0 · host"]


def test_a_run_without_events_has_no_lane(tmp_path: Path) -> None:
    assert read_memory(training_run(tmp_path)) == ()


def sample(t_ns: int, metric: str, value: float, *, device: int | None = 0, **more: Any) -> Row:
    unit = {"pct": "%", "w": "W", "bytes": "bytes"}.get(metric.rpartition("_")[2], "")
    return {
        C.T_NS: t_ns,
        C.SOURCE: "nvml",
        C.RANK: 0,
        C.DEVICE: device,
        C.METRIC: metric,
        C.UNIT: unit,
        C.VALUE: value,
        **more,
    }


def counters(path: Path, *samples: Row) -> tuple[Levels, ...]:
    return read_counters(make_run(path, counters=list(samples)), (0, 1_000))


def levels(lane: Levels) -> list[tuple[int, float | None]]:
    """When a lane changes, and to what; None where it is unknown."""
    known = [None if np.isnan(value) else float(value) for value in lane.values]
    return [(-1, known[0]), *zip(lane.t_ns.tolist(), known[1:], strict=True)]


def test_a_state_holds_around_its_sample_and_an_average_before_it(tmp_path: Path) -> None:
    times = [100, 200, 300, 900, 1_000]
    power = [sample(at, "power_w", float(at)) for at in times]
    share = [sample(at, "gpu_utilization_pct", at / 10) for at in times]
    of_share, of_power = counters(tmp_path, *power, *share)
    # a sample covers at most three times the usual distance, and half of the distance to its neighbors
    unknown = [(450, None), (750, 900.0), (950, 1_000.0)]
    assert levels(of_power) == [(-1, None), (50, 100.0), (150, 200.0), (250, 300.0), *unknown]
    assert levels(of_share) == [
        *[(-1, 10.0), (100, 20.0), (200, 30.0)],
        *[(300, None), (600, 90.0), (900, 100.0), (1_000, None)],
    ]
    sent = {name: array.tolist() for name, array in render_levels(of_power, _QUARTERS).items()}
    assert sent["column"] == [0, 1, 3]
    assert (sent["low"], sent["high"]) == ([100.0, 300.0, 900.0], [200.0, 300.0, 1_000.0])
    assert np.isnan(sent["last"]).tolist() == [False, True, False]


_QUARTERS = Window(start=0, end=1_000, width=4)


def test_counters_have_a_title_a_limit_and_their_place_in_the_order(tmp_path: Path) -> None:
    rows = [
        *(sample(at, "memory_used_bytes", float(at << 20)) for at in (1, 2)),
        sample(0, "memory_total_bytes", float(1 << 30)),
        *(sample(at, "power_w", 400.5 + at) for at in (1, 2)),
        *(sample(at, "gpu_utilization_pct", float(at)) for at in (1, 2)),
        *(
            sample(at, "cpu_percent", 90.0 + at, device=None, **{C.SOURCE: "process", C.UNIT: "%"})
            for at in (1, 2)
        ),
    ]
    found = [lane.describe(5) for lane in counters(tmp_path, *rows)]
    assert [(lane["title"], lane["limit"]) for lane in found] == [
        ("utilization · max 2%", 100.0),
        ("power · max 402 W", None),
        ("memory used · max 2.00 MiB", float(1 << 30)),
        ("process CPU · max 92%", None),
    ]
    assert {lane["group"] for lane in found} == {"rank 0 · counters"}
    assert (found[1]["kind"], found[1]["unit"], found[1]["low"], found[1]["high"]) == (
        "counter",
        "W",
        401.5,
        402.5,
    )


def test_what_never_changes_is_not_a_level_or_is_outside_of_the_capture_has_no_lane(tmp_path: Path) -> None:
    rows = [
        *(sample(at, "power_w", 400.0) for at in (1, 2)),
        *(sample(at, "throttle_reasons", float(at)) for at in (1, 2)),
        *(sample(at, "energy_j", float(at)) for at in (1, 2)),
        *(sample(at, "temperature_c", float(at)) for at in (-3_000, -2_000)),
        *(sample(at, "switches", float(at), **{C.SOURCE: "scheduler"}) for at in (1, 2)),
        *(sample(at, "gpu_utilization_pct", value) for at, value in ((1, 0.0), (2, float("nan")), (3, 0.0))),
    ]
    assert counters(tmp_path, *rows) == ()


def test_counters_of_several_ranks_and_devices_are_told_apart(tmp_path: Path) -> None:
    rows = [
        sample(at, "power_w", float(at), device=device, **{C.RANK: rank})
        for at in (1, 2)
        for rank, device in ((0, 0), (0, 1), (1, 0), (None, 3))
    ]
    found = [(lane.group, lane.describe(0)["title"]) for lane in counters(tmp_path, *rows)]
    assert found == [
        ("rank 0 · counters", "GPU 0 power · max 2 W"),
        ("rank 0 · counters", "GPU 1 power · max 2 W"),
        ("rank 1 · counters", "power · max 2 W"),
        ("counters", "power · max 2 W"),
    ]


moments = st.lists(st.tuples(st.integers(0, 60), st.integers(-9, 9)), min_size=1, max_size=40)


@given(moments, st.integers(-5, 50), st.integers(1, 40), st.integers(1, 50))
def test_columns_have_the_exact_extremes(
    events: list[tuple[int, int]], start: int, span: int, width: int
) -> None:
    """Against every level that holds at some instant of a column, one after the other."""
    events.sort(key=lambda one: one[0])
    times = [t for t, _ in events]
    held = [0, *np.cumsum([size for _, size in events]).tolist()]
    found = Levels(rank=0, device=0, t_ns=np.array(times), values=np.array(held), total=False)
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
