"""Lanes of a query: which rows are shown, in which lane, and what is said of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tracekit.dashboards import query_runner
from tracekit.dashboards.app import create_app
from tracekit.dashboards.query_runner import Result
from tracekit.dashboards.site import Site, View
from tracekit.dashboards.timeline import routes
from tracekit.dashboards.timeline.query_lanes import read_lanes

from tests.unit.dashboards.timeline_runs import HOSTILE, training_run
from tracekit.errors import UnusableInputError
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from werkzeug.test import TestResponse

    Post = Callable[..., TestResponse]

SPAN = (0, 1_000)
REQUIRED = "select start_ns, and dur_ns or end_ns"


def result(columns: str, *rows: tuple[Any, ...], more: bool = False) -> Result:
    return Result(
        tuple((name, "BIGINT") for name in columns.split()), [list(row) for row in rows], more, seconds=0.1
    )


def test_each_rank_has_lanes_of_its_own_in_which_nothing_overlaps() -> None:
    rows = [(50, 20, 1, "b"), (0, 100, 1, "a"), (100, 0, 1, "c"), (5, 5, None, "d"), (10, 90, 0, "e")]
    shown = read_lanes(result("start_ns dur_ns rank name", *rows), None, SPAN, {})
    assert shown["lanes"] == [
        {"rank": None, "depth": 0, "start": [5], "dur": [5], "row": [3]},
        {"rank": 0, "depth": 0, "start": [10], "dur": [90], "row": [4]},
        {"rank": 1, "depth": 0, "start": [0, 100], "dur": [100, 0], "row": [1, 2]},
        {"rank": 1, "depth": 1, "start": [50], "dur": [20], "row": [0]},
    ]
    assert shown["names"] == ["b", "a", "c", "d", "e"]
    of_one = read_lanes(result("start_ns dur_ns rank name", *rows), 0, SPAN, {})
    assert [(lane["rank"], lane["row"]) for lane in of_one["lanes"]] == [(None, [3]), (0, [4])]
    assert of_one["outside"] == 0


def test_rows_that_are_not_shown_are_counted_by_reason() -> None:
    rows = [(0, 9), (None, 9), (5, None), (9, 8), (-20, -1), (1_001, 1_002), (990, 2_000), (1 << 62, 1 << 63)]
    shown = read_lanes(result("start_ns end_ns", *rows, more=True), None, SPAN, {})
    assert shown["lanes"] == [{"rank": None, "depth": 0, "start": [0, 990], "dur": [9, 1_010], "row": [0, 6]}]
    counts = (shown["without_times"], shown["outside"], shown["crowded"], shown["more"], shown["names"])
    assert counts == (4, 2, 0, True, None)
    overlapping = read_lanes(result("start_ns dur_ns", *[(0, 9)] * 70), None, SPAN, {})
    assert (len(overlapping["lanes"]), overlapping["crowded"]) == (64, 6)


def test_other_columns_are_sent_as_browsers_read_them_exactly() -> None:
    row = (1, 2, 1 << 60, 1 << 40, 0.5, None, "x", True, [1, 2])
    shown = read_lanes(
        result("start_ns dur_ns address bytes share stream kind flag list", row), None, SPAN, {}
    )
    assert shown["columns"] == ["address", "bytes", "share", "stream", "kind", "flag", "list"]
    assert shown["values"] == [["1152921504606846976", 1 << 40, 0.5, None, "x", "true", "[1, 2]"]]


@pytest.mark.parametrize(
    ("columns", "row", "message", "hint"),
    [
        ("dur_ns", (1,), "the result has no start_ns", REQUIRED),
        (
            "start_ns name",
            (1, "a"),
            "the result has no dur_ns or end_ns",
            REQUIRED,
        ),
        ("start_ns dur_ns", (1, 0.5), "dur_ns is BIGINT, not an integer", "use CAST(dur_ns AS BIGINT)"),
        ("start_ns dur_ns rank", (1, 2, "0"), "rank is BIGINT, not an integer", "use CAST(rank AS BIGINT)"),
        ("start_ns dur_ns", (True, 2), "start_ns is BIGINT, not an integer", "use CAST(start_ns AS BIGINT)"),
    ],
)
def test_what_a_result_lacks_is_said_with_what_to_change(
    columns: str, row: tuple[Any, ...], message: str, hint: str
) -> None:
    with pytest.raises(UnusableInputError, match=message) as raised:
        read_lanes(result(columns, row), None, SPAN, {})
    assert raised.value.hint == hint


@pytest.fixture
def post(tmp_path: Path) -> Post:
    run = training_run(tmp_path)
    store = Store(tmp_path)
    app = create_app(store)
    routes.connect(Site(app=app, store=store, pages={}))
    client = app.server.test_client()

    def send(method: str = "POST", **body: Any) -> TestResponse:
        return client.open(f"/timeline/{run.path.name}/query", method=method, json=body)

    return send


def test_a_query_is_run_over_the_tables_of_the_run_with_the_limits_of_the_sql_page(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_runner, "MAX_ROWS", 2)
    sql = (
        "SELECT start_ns, dur_ns, name, stream FROM device_intervals WHERE kind = 'kernel' ORDER BY start_ns"
    )
    shown = post(sql=sql).json
    assert shown["lanes"] == [
        {"rank": None, "depth": 0, "start": [100, 690], "dur": [200, 210], "row": [0, 1]}
    ]
    assert (shown["names"], shown["columns"], shown["values"]) == (
        ["ampere_sgemm", HOSTILE],
        ["stream"],
        [[7], [7]],
    )
    assert shown["more"] is False
    assert post(sql="SELECT start_ns, dur_ns FROM host_intervals").json["more"] is True


@pytest.mark.slow_except(6)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"sql": " "}, "the query is empty"),
        ({"sql": "x" * 4_001}, "more than 4,000 characters"),
        ({"sql": "COPY steps TO 'out'"}, "COPY is not allowed"),
        ({"sql": 1}, "not a query"),
        ({"sql": "SELECT 1", "rank": -1}, "not a query"),
        ({"sql": "SELECT 1", "over": "all"}, "not a query"),
        ({"sql": "SELECT strt_ns FROM steps"}, "strt_ns"),
    ],
)
def test_a_refused_query_is_an_error_in_one_line(post: Post, body: dict[str, Any], message: str) -> None:
    answer = post(**body)
    assert answer.status_code == (400 if message == "not a query" else 200)
    assert message in answer.json["error"]
    assert "\n" not in answer.json["error"] + answer.json["hint"]
    assert answer.json["hint"]


def test_another_site_cannot_run_a_query_and_one_that_ended_can_be_cancelled(
    post: Post, tmp_path: Path
) -> None:
    assert post("DELETE", sql="SELECT 1").json == {}
    client = create_app(Store(tmp_path)).server.test_client()
    asked = {"json": {"sql": "SELECT 1"}, "headers": {"Sec-Fetch-Site": "cross-site"}}
    assert client.post("/timeline/any/query", **asked).status_code == 403


def test_the_queries_of_an_address_are_not_cut_where_other_parameters_are() -> None:
    queries = f'[[1, "", "{"x" * 4_000}"]]'
    view = View.parse("/timeline", View(page="timeline", options={"queries": queries}).search())
    assert view.options["queries"] == queries
