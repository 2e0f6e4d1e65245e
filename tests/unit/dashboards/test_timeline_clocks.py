"""Aligned clocks: a run whose ranks have other clocks is shown as if they had one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tracekit.dashboards.app import create_app
from tracekit.dashboards.site import Site
from tracekit.dashboards.timeline import routes

from tests.builders import device, host, kernel, make_run, step
from tests.unit.dashboards.timeline_runs import timeline_client, unpacked
from tracekit.runs.store import Store
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from werkzeug.test import TestResponse

    from tests.builders import Row

    Ask = Callable[..., TestResponse]

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
OFFSETS = {0: 0, 1: 5_000, 2: -300}
STEPS = (0, 5, 10)
LANES = "1-4,6-9,11-14"
"""Lanes of the steps, and the other ones."""


def job(path: Path, offsets: dict[int, int]) -> Ask:
    """Asks the timeline of a job of three ranks, whose clocks are ahead by these offsets."""
    tables: dict[str, list[Row]] = {
        name: [] for name in ("steps", "host_intervals", "device_intervals", "allocations")
    }
    for rank, offset in offsets.items():
        at = {C.RANK: rank, C.PID: 10 + rank, C.TID: 10 + rank}
        on = {C.RANK: rank, C.DEVICE: rank, C.STREAM: 7}
        tables["steps"].append(step(3, offset, 9_000 + offset + rank, **{C.RANK: rank}))
        for number in range(4):
            start = offset + 2_000 * number + 100 * rank
            length = 3 * number + rank  # no two are alike, so that nothing depends on the order of rows
            call = len(tables["host_intervals"])
            tables["host_intervals"] += [
                host(f"aten::op{number}", start, start + 300 + length, **at, **{C.ROW_ID: call}),
                host(
                    "cudaLaunchKernel",
                    start + 10,
                    start + 40 + length,
                    **at,
                    **{C.ROW_ID: call + 1, C.PARENT_ROW: call, C.DEPTH: 1, C.KIND: HostKind.RUNTIME},
                ),
            ]
            row = len(tables["device_intervals"])
            more = {C.OP_ROW: call, C.LAUNCH_ROW: call + 1}
            end = offset + 2_000 * number + 1_800
            tables["device_intervals"] += [
                kernel(
                    start + 60, start + 900 + length, **on, **more, **{C.ROW_ID: row, C.NAME: f"gemm{number}"}
                ),
                device(DeviceKind.IDLE, start + 900 + length, start + 950, **on, **{C.ROW_ID: row + 1}),
                kernel(start + 950 + length, end, **on, **{C.ROW_ID: row + 2, C.NAME: ALL_REDUCE}),
            ]
        tables["allocations"].append(
            {C.T_NS: offset + 40, C.RANK: rank, C.DEVICE: rank, C.BYTES: 64, C.TOTAL_ALLOCATED: 64}
        )
    return timeline_client(make_run(path, **tables))


@pytest.fixture(scope="module")
def true(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """The job with one clock."""
    return job(tmp_path_factory.mktemp("true"), dict.fromkeys(OFFSETS, 0))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """The job with a clock per rank."""
    return job(tmp_path_factory.mktemp("recorded"), OFFSETS)


def test_offsets_are_those_of_the_clocks_with_the_number_of_collectives(recorded: Ask, true: Ask) -> None:
    told = recorded("clocks").json
    found = [
        (clock["rank"], clock["offset_ns"], clock["spread_ns"], clock["collectives"])
        for clock in told["ranks"]
    ]
    assert found == [(0, 0, 0, 0), (1, 5_000, 0, 4), (2, -300, 0, 4)]
    assert told["without"] == []
    assert recorded("lanes").json["several_ranks"]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("lanes", {}),
        ("search", {"q": "gemm"}),
        ("search", {"q": "idle", "mode": "category", "from_": 1_000, "to": 6_000}),
        ("step", {"q": ALL_REDUCE, "mode": "name", "row": "device_intervals:14", "by": 1}),
        ("step", {"q": "gemm1", "mode": "name", "at": 2_050, "by": 1}),
        ("summary", {"from_": 1_000, "to": 3_300, "lanes": LANES}),
        ("summary.csv", {"from_": 1_000, "to": 3_300, "lanes": LANES}),
        ("draw", {}),
        ("draw", {"from_": 500, "to": 7_000, "width": 3}),
    ],
)
def test_everything_by_position_is_as_with_one_clock(
    recorded: Ask, true: Ask, place: str, words: dict[str, Any]
) -> None:
    expected = content(true(place, **words))
    assert content(recorded(place, **words, clocks="aligned")) == expected
    assert content(recorded(place, **words)) != expected


def content(answer: TestResponse) -> Any:
    """What an answer says, without the numbers of names and of rows of `steps`, which go by recorded time."""
    if answer.mimetype == "application/octet-stream":
        header, lanes = unpacked(answer.data)
        for lane in lanes:
            lane["name"] = [header["names"][number] for number in lane.get("name", [])]
            if lane["id"] in STEPS:
                lane.pop("row")
        return header["from"], header["to"], lanes
    if not answer.is_json:
        return answer.text
    told = answer.json
    if "steps" in told:
        told["steps"] = sorted((row["rank"], row["start_ns"], row["end_ns"]) for row in told["steps"])
    return told


def test_details_are_where_the_interval_is_shown_and_as_recorded(recorded: Ask, true: Ask) -> None:
    shown, expected = (
        recorded("row/device_intervals/12", clocks="aligned").json,
        true("row/device_intervals/12").json,
    )
    assert shown["start_ns"] == expected["start_ns"] == 160
    assert shown["fields"]["start_ns"]["value"] == 5_160
    for name in ("launch", "op", "next", "parents", "lane"):
        assert shown[name] == expected[name]
    called = recorded("row/host_intervals/8", clocks="aligned").json
    assert [one["start_ns"] for one in called["launched"]] == [160]
    # a row that has no lane is where it was recorded
    assert recorded("row/steps/1", clocks="aligned").json["start_ns"] == 0


def test_rows_of_a_query_that_have_a_rank_are_shifted(recorded: Ask) -> None:
    sql = "SELECT start_ns, dur_ns, rank FROM steps UNION ALL SELECT 5000, 1, NULL"
    lanes = recorded("query", "POST", {"sql": sql}, clocks="aligned").json["lanes"]
    assert sorted((lane["rank"] is None, lane["start"]) for lane in lanes) == [
        *[(False, [0])] * 3,
        (True, [5_000]),
    ]


def test_a_note_on_an_interval_is_kept_as_recorded_and_shown_where_the_interval_is(tmp_path: Path) -> None:
    ask = job(tmp_path, OFFSETS)
    on_row = {"from_ns": 160, "to_ns": 1_000, "row": "device_intervals:12", "text": "here"}
    on_time = {"from_ns": 200, "to_ns": 400}
    for note in (on_row, on_time):
        written = ask("notes", "POST", note, clocks="aligned").json
        assert (written["from_ns"], written["to_ns"]) == (note["from_ns"], note["to_ns"])
    spans = [
        sorted((note["from_ns"], note["to_ns"]) for note in ask("notes", **words).json["notes"])
        for words in ({}, {"clocks": "aligned"})
    ]
    assert spans == [[(200, 400), (5_160, 6_000)], [(160, 1_000), (200, 400)]]


def test_without_collectives_nothing_is_offered_nor_shifted(tmp_path: Path) -> None:
    run = make_run(tmp_path, device_intervals=[kernel(5, 9), kernel(50, 90, **{C.RANK: 1})])
    app = create_app(Store(tmp_path))
    routes.connect(Site(app=app, store=Store(tmp_path), pages={}))
    client = app.server.test_client()
    assert client.get(f"/timeline/{run.path.name}/clocks").json == {"ranks": [], "without": []}
    aligned = client.get(f"/timeline/{run.path.name}/lanes?clocks=aligned").json
    assert (aligned["start_ns"], aligned["end_ns"]) == (5, 90)
