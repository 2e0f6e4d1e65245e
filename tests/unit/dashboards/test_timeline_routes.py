from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tracekit.dashboards.app import create_app
from tracekit.dashboards.site import Site
from tracekit.dashboards.timeline import routes
from tracekit.dashboards.timeline.read_columns import CATEGORIES

from tests.builders import device, host, kernel, make_run, memcpy
from tests.unit.dashboards.timeline_runs import HOSTILE, timeline_client, training_run, unpacked
from tracekit.runs.store import Store
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from werkzeug.test import TestResponse

    Get = Callable[..., TestResponse]


@pytest.fixture(scope="module")
def get(tmp_path_factory: pytest.TempPathFactory) -> Get:
    return timeline_client(training_run(tmp_path_factory.mktemp("store")))


def test_lanes_are_told_with_steps_and_categories(get: Get) -> None:
    reported = get("lanes").json
    assert reported["schema"] == "tracekit.timeline/1"
    assert (reported[C.START_NS], reported["end_ns"], reported["left_out"]) == (0, 1_000, 0)
    assert reported["steps"] == [
        {"row": 0, "rank": 0, "step": 3, "name": "ProfilerStep#3", C.START_NS: 0, "end_ns": 1_000}
    ]
    assert [one["name"] for one in reported["categories"]] == list(CATEGORIES)
    assert reported["lanes"][3] == {
        "id": 3,
        "group": "rank 0 · GPU 0",
        "title": "stream 7",
        "kind": "device",
        "rank": 0,
        "device": 0,
        "stream": 7,
        "pid": None,
        "tid": None,
        "depth": 0,
        "rows": 2,
        "process_group": None,
    }


def test_a_filter_by_device_keeps_the_host(get: Get) -> None:
    assert {lane["kind"] for lane in get("lanes", device=1).json["lanes"]} == {"steps", "annotation", "host"}
    assert get("lanes", rank=1).json["lanes"] == []
    assert get("lanes", rank=1).json["steps"] == []


def test_a_drawing_has_what_was_asked_for(get: Get) -> None:
    answer = get("draw", from_=0, to=1_000, width=100, lanes="3,4-5")
    assert answer.mimetype == "application/octet-stream"
    header, lanes = unpacked(answer.data)
    assert (header["from"], header["to"], header["width"]) == (0, 1_000, 100)
    assert [lane["id"] for lane in lanes] == [3, 4, 5]
    assert [header["names"][number] for number in lanes[0]["name"]] == ["ampere_sgemm", HOSTILE]
    assert (lanes[0]["start"], lanes[0]["dur"], lanes[0]["row"]) == ([100, 690], [200, 210], [0, 3])


def test_a_drawing_without_words_is_of_everything(get: Get) -> None:
    header, lanes = unpacked(get("draw").data)
    assert (header["from"], header["to"]) == (0, 1_000)
    assert len(lanes) == 9


def test_widths_are_kept_within_bounds(get: Get) -> None:
    assert unpacked(get("draw", width=10**9).data)[0]["width"] == 8_192
    assert unpacked(get("draw", width=-4).data)[0]["width"] == 1


def test_answers_are_kept_by_the_browser_once_they_are_final(get: Get) -> None:
    for path in ("draw", "lanes", "search", "summary", "row/steps/0"):
        assert get(path).headers["Cache-Control"] == "private, max-age=3600"


def test_answers_are_not_kept_while_causes_are_worked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.dashboards.timeline.disk.OpenIndexes._compute_causes", lambda *_: None)
    run = training_run(tmp_path)
    get = timeline_client(run)
    assert get("draw").headers["Cache-Control"] == "no-store"
    assert unpacked(get("draw").data)[0]["causes"] is False
    assert get("row/device_intervals/1").json["pending"] is True


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("draw?from=9&to=3", 400),
        ("draw?from=1.5", 400),
        ("draw?from=1e9", 400),
        ("draw?to=99999999999999999999", 400),
        ("draw?width=wide", 400),
        ("draw?lanes=1,,2", 400),
        ("draw?lanes=9", 400),
        ("draw?lanes=0-999999999", 400),
        ("draw?lanes=-1", 400),
        ("step?by=1", 400),
        ("step?lane=zero&by=1", 400),
        ("step?q=(&mode=regex&by=1", 400),
        ("search?q=a&mode=lane", 400),
        ("lanes?rank=one", 400),
        ("row/host_intervals/x", 400),
        ("row/host_intervals/99", 404),
        ("row/device_intervals/-1", 404),
        ("row/steps/1", 404),
        ("row/allocations/0", 404),
        ("row/passwd/0", 404),
    ],
)
def test_what_is_wrong_is_said(get: Get, path: str, status: int) -> None:
    answer = get(path)
    assert answer.status_code == status
    assert set(answer.json) == {"error", "hint"}


@pytest.mark.parametrize("run_id", ["latest", "..", "%2e%2e%2fetc", ".timeline", "no-such-run"])
def test_only_whole_ids_name_a_run(tmp_path: Path, run_id: str) -> None:
    run = training_run(tmp_path)
    store = Store(run.path.parent)
    app = create_app(store)
    routes.connect(Site(app=app, store=store, pages={}))
    answer = app.server.test_client().get(f"/timeline/{run_id}/lanes")
    assert answer.status_code == 404 or not answer.data.startswith(b'{"schema"')


def test_too_many_lanes_are_refused(tmp_path: Path) -> None:
    rows = [kernel(0, 5, **{C.STREAM: number}) for number in range(600)]
    get = timeline_client(make_run(tmp_path, device_intervals=rows))
    assert get("draw").status_code == 400
    assert get("draw", lanes="0-511").status_code == 200
    assert get("draw", lanes="1," * 10_001 + "1").status_code == 400
    assert get("summary").status_code == 200


def test_a_kernel_is_told_with_its_launch_and_what_is_around(get: Get) -> None:
    reported = get("row/device_intervals/0").json
    assert (reported["lane"], reported["category"]) == (3, "gemm")
    assert reported["fields"][C.DUR_NS]["text"] == "200 ns"
    assert reported["fields"]["rank"]["value"] == 0
    assert (reported["launch"]["name"], reported["launch"]["lane"]) == ("cudaLaunchKernel", 7)
    assert reported["op"]["name"] == "aten::mm"
    assert [one["name"] for one in reported["parents"]] == ["aten::mm", "forward", "ProfilerStep#3"]
    assert reported["stack"] == ["a.py(3): f", "b.py(9): g"]
    assert (reported["next"]["row"], reported["next"][C.START_NS]) == (3, 690)
    assert reported["related"] == {}
    assert get("row/device_intervals/3").json["next"] is None


def test_a_device_row_has_the_shapes_of_its_op_and_the_collective_around_it(tmp_path: Path) -> None:
    outer = {C.COLLECTIVE: "all_reduce", C.GROUP_SIZE: 8, C.INPUT_SHAPES: "[[9]]", C.MODULE: "Head"}
    inner = {C.GROUP_NAME: "dp", C.INPUT_SHAPES: "[[4]]", C.PARENT_ROW: 0, C.DEPTH: 1}
    calls = [
        host("c10d::allreduce_", 0, 90, **outer),
        host("record_param_comms", 10, 80, **inner),
    ]
    called = {C.STREAM: 9, C.OP_ROW: 1}
    rows = [
        kernel(100, 200, **called, **{C.NAME: "ncclKernel"}),
        memcpy(300, 400, **{C.STREAM: 9, C.BYTES: 500}),
        kernel(500, 600, **{C.STREAM: 9}),
        kernel(700, 800, **{C.STREAM: 7}),
    ]
    get = timeline_client(make_run(tmp_path, host_intervals=calls, device_intervals=rows))
    lanes = {lane["title"]: lane["process_group"] for lane in get("lanes").json["lanes"]}
    assert (lanes["stream 9"], lanes["stream 7"]) == ("dp", None)
    related = get("row/device_intervals/0").json["related"]
    assert {name: one["value"] for name, one in related.items()} == {
        C.INPUT_SHAPES: "[[4]]",
        C.MODULE: "Head",
        C.COLLECTIVE: "all_reduce",
        C.GROUP_NAME: "dp",
        C.GROUP_SIZE: 8,
    }
    copied = get("row/device_intervals/1").json["related"]
    assert {name: one["text"] for name, one in copied.items()} == {"bandwidth": "5.00 GB/s"}
    assert get("row/device_intervals/2").json["related"] == {}


def test_a_host_row_is_told_with_what_it_launched(get: Get) -> None:
    reported = get("row/host_intervals/1").json
    assert [one["name"] for one in reported["launched"]] == ["ampere_sgemm", "memcpy"]
    assert reported["launched_total"] == 2
    assert [one["name"] for one in reported["parents"]] == ["ProfilerStep#3"]
    call = get("row/host_intervals/5").json
    assert [one["name"] for one in call["launched"]] == ["memcpy"]
    assert call["op"]["name"] == "aten::copy_"
    assert get("row/host_intervals/6").json["launched_total"] == 0


def test_idle_time_is_told_with_its_cause(get: Get) -> None:
    reported = get("row/device_intervals/1").json
    assert reported["category"] in CATEGORIES
    assert (reported["pending"], reported["lane"]) == (False, 5)
    assert set(reported) >= {"cause", "idle_op", "op", "launch"}


def test_the_cause_is_the_one_of_the_analysis(tmp_path: Path) -> None:
    call: dict[str, Any] = {"kind": HostKind.RUNTIME, C.CORRELATION_ID: 1}
    run = make_run(
        tmp_path,
        host_intervals=[
            host("aten::relu", 0, 90_000, **{C.STACK: "/torch/nn.py(3): call;train.py(12): main"}),
            host("cudaLaunchKernel", 80_000, 85_000, **call, **{C.PARENT_ROW: 0, C.DEPTH: 1}),
        ],
        device_intervals=[
            kernel(0, 10_000, **{C.STREAM: 7}),
            device(DeviceKind.IDLE, 10_000, 90_000),
            kernel(90_000, 99_000, **{C.STREAM: 7, C.LAUNCH_ROW: 1, C.OP_ROW: 0}),
        ],
    )
    reported = timeline_client(run)("row/device_intervals/1").json
    assert (reported["cause"], reported["category"]) == ("launch-bound", "idle: launch-bound")
    assert (reported["idle_op"], reported["op"]["name"], reported["launch"]["row"]) == (
        "aten::relu",
        "aten::relu",
        1,
    )
    assert reported["source"] == "train.py(12): main"


def test_search_and_steps_answer_with_intervals(get: Get) -> None:
    reported = get("search", q="sgemm").json
    assert (reported["total"], reported["names"][0]["first"]["lane"]) == (1, 3)
    found = get("step", q="ampere_sgemm", mode="name", at=-1, by=1).json
    assert (found["total"], found["place"], found["interval"]["row"]) == (1, 1, 0)
    back = get("step", lane=3, row="device_intervals:3", by=-1).json
    assert (back["total"], back["place"], back["interval"]["name"]) == (2, 1, "ampere_sgemm")
    longest = get("step", lane=3, order="longest", by=1).json["interval"]
    assert longest["row"] == 3
    assert get("step", q="gemm", mode="category", rank=1, by=1).json["total"] == 0


def test_a_summary_is_of_the_range_and_the_lanes(get: Get) -> None:
    whole = get("summary", lanes="3").json  # cached apart from that of the range
    reported = get("summary", from_=200, to=700, lanes="3").json
    assert reported["rows"] != whole["rows"]
    assert [(row["name"], row["sum_ns"]) for row in reported["rows"]] == [
        ("ampere_sgemm", 100),
        (HOSTILE, 10),
    ]
    assert reported["total"] == 2


def test_a_summary_is_a_file_too(get: Get) -> None:
    answer = get("summary.csv", lanes="3")
    assert answer.mimetype == "text/csv"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.data.decode().splitlines()[1].startswith("\"'=cmd")


def test_routes_are_added_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    app = create_app(store)
    for _ in range(2):
        routes.connect(Site(app=app, store=store, pages={}))
    assert app.server.test_client().get("/timeline/none/lanes").status_code == 404
    assert not (tmp_path / ".timeline").exists()
